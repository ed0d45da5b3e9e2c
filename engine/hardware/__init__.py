"""Hardware: devices, GPU memory plan, forecasts of time and memory, and the doctor.

Imported by `policy`, `storage` and above.
"""
