"""The engine: trains models, stores runs, serves requests. It never uses Qt, and importing this
package loads no other module."""

__version__ = "0.1.0"
