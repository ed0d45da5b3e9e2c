"""Gallery pages by name."""

from tests.studio.gallery.parts import empty_page, form_page, home_page, parts_page, transcript_page
from tests.studio.gallery.run import run_window

PAGES = {
    "run": run_window,
    "parts": parts_page,
    "home": home_page,
    "form": form_page,
    "empty": empty_page,
    "transcript": transcript_page,
}
