"""The desktop studio: a Qt application that shows and steers training; it never imports torch."""
