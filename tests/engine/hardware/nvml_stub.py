"""NVML stub with two GPUs, compiled from C: the functions that the engine uses.

The second GPU answers most queries with NVML_ERROR_NOT_SUPPORTED. Memory use and process of the
first are read from STUB_USED (bytes) and STUB_PID.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
typedef unsigned int u; typedef unsigned long long ull; typedef struct card *handle;
enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9 };
typedef struct { ull total, free, used; } memory;
typedef struct { u gpu, memory; } rates;
typedef struct { u pid; ull used; u gpu, compute; } process;
static int cards[2] = {0, 1};
static int silent(handle h) { return (int *)h != &cards[0]; }
static ull used(void) {
    char *s = getenv("STUB_USED"); return s ? strtoull(s, 0, 10) : 6100000000ull; }
static u pid(void) { char *s = getenv("STUB_PID"); return s ? (u)atoi(s) : 0; }
int nvmlInitWithFlags(u f) { return getenv("STUB_UNLOADED") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int e) { return "said by the stub"; }
int nvmlDeviceGetCount_v2(u *n) {
    *n = getenv("STUB_CARDS") ? (u)atoi(getenv("STUB_CARDS")) : 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(u i, handle *h) { *h = (handle)&cards[i]; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *s, u n) { strncpy(s, "580.65.06", n); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return SUCCESS; }
int nvmlDeviceGetUUID(handle h, char *s, u n) {
    strncpy(s, silent(h) ? "GPU-bbbb" : "GPU-aaaa", n); return SUCCESS; }
int nvmlDeviceGetName(handle h, char *s, u n) { strncpy(s, "NVIDIA L40S", n); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(handle h, memory *m) {
    if (silent(h)) return NOT_SUPPORTED;
    m->total = 48000000000ull; m->used = used(); m->free = m->total - m->used; return SUCCESS; }
int nvmlDeviceGetUtilizationRates(handle h, rates *r) {
    if (silent(h)) return NOT_SUPPORTED;
    r->gpu = 0; r->memory = 0; return SUCCESS; }
int nvmlDeviceGetTemperature(handle h, int sensor, u *t) {
    if (silent(h)) return NOT_SUPPORTED;
    *t = 61; return SUCCESS; }
int nvmlDeviceGetPowerUsage(handle h, u *p) {
    if (silent(h)) return NOT_SUPPORTED;
    *p = 217500; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(handle h, u *p) {
    if (silent(h)) return NOT_SUPPORTED;
    *p = 350000; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(handle h, int *a, int *b) {
    if (silent(h)) return NOT_SUPPORTED;
    *a = 8; *b = 9; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(handle h, u *n, process *p) {
    if (silent(h)) return NOT_SUPPORTED;
    if (!pid()) { *n = 0; return SUCCESS; }
    if (*n < 1) { *n = 1; return INSUFFICIENT_SIZE; }
    *n = 1; p[0].pid = pid(); p[0].used = used() - 100000000ull; return SUCCESS; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle h, u *n, process *p) {
    if (silent(h)) return NOT_SUPPORTED;
    *n = 0; return SUCCESS; }
int nvmlSystemGetProcessName(u p, char *s, u n) {
    strncpy(s, "/opt/app/bin/trainer --all", n); return SUCCESS; }
"""


def build(folder: Path) -> Path:
    """Compile the stub into `folder` for LD_LIBRARY_PATH; skips the test without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the driver's library with")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "nvml.c"
    source.write_text(SOURCE)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    return folder
