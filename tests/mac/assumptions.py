"""All that these tests assume of macOS, Metal and MLX there. Nothing of it was measured here: each line has its source.

Where a line turns out to be wrong, it is changed here, and the tests say what follows.
"""

GIB, MIB = 1 << 30, 1 << 20

# `recommendedMaxWorkingSetSize` of a Mac of so many GiB, in MiB, as llama.cpp prints it: two thirds of the memory up to
# 32 GiB, three quarters of more.
WORKING_SETS_MIB = {
    8: 5_461,  # 5726.63 MB, "/ 5461.34", on an M1 (whisper.cpp's and llama.cpp's logs in public repositories)
    16: 10_922,  # M1 Pro: github.com/abetlen/llama-cpp-python/issues/687
    24: 16_384,  # 17179.89 MB on an M2 (llama.cpp's log in a public repository)
    32: 21_845,  # M2 Max: github.com/ollama/ollama/issues/434; M1 Max: github.com/ggml-org/llama.cpp/pull/2011
    64: 49_152,  # M1 Max: github.com/ggml-org/llama.cpp/issues/1870
    96: 73_728,  # M2 Max: github.com/ggml-org/llama.cpp/issues/3213
}
# Newer systems recommend more: 12713.12 MB on an M4 of 16 GB (Homebrew ggml 0.13.1's log); 107.52 GiB on two Macs of
# 128 GiB (github.com/antirez/ds4/pull/893). The table counts with the smaller, older figures.

# Setting `iogpu.wired_limit_mb` changes what Metal recommends to exactly that, up and down
# (github.com/AlexsJones/llmfit/pull/754, on an M3; ds4/pull/893, on an M5 Max). 0 is the default: nothing set.

# What psutil calls available on one idle Mac of 24 GB, nine days apart (apple-silicon-llm-bench#7); as little as 2 GB
# is a healthy Mac with a browser open (instar#1287, mistral.rs#2419).
AVAILABLE_SWINGS_GB = (2.0, 4.0, 8.0, 10.7, 19.1)

# sysctl `kern.memorystatus_vm_pressure_level` (Apple's <sys/event.h>; the headers behind deployments/memory/sensors).
PRESSURE = {"normal": 1, "warn": 2, "critical": 4}

# The first prompt of Claude Code, counted in November 2026.
FIRST_PROMPT_TOKENS = 11_648

# MLX fuses prefill for heads of 64, 80 and 128 by itself; 192 and 256 take `force_fused`, which is there since 0.32.4
# and raises where there is no kernel (github.com/ml-explore/mlx/pull/4185). Unfused, a layer holds heads x chunk x
# context x 4 bytes at a time (github.com/ml-explore/mlx/issues/3658, measured in production).

# `mx.set_wired_limit` refuses more than the recommended working set (its docstring, MLX 0.32.4). macOS takes unwired
# memory of a GPU away after about a second (github.com/ggml-org/llama.cpp/pull/17766).

# `launchctl bootstrap` soon after `bootout` fails with 5 ("Bootstrap failed: 5: Input/output error") for about 5 s
# (measured in headroom#1289; openclaw#136453 is a service that stayed off for want of another try).

# What lies untouched in /tmp for three days is removed (`daily_clean_tmps_days` of periodic.conf(5)), sockets too:
# five of five were gone on a machine up for 49 days (Spexcode#97).

# `caffeinate -i -w PID` holds off idle sleep until that process ends, on battery as well (caffeinate(8)). psutil's
# `sensors_battery` is None without a battery, else it tells whether the plug is in (its documentation for macOS).
# Without it an idle Mac sleeps in the middle of an agent's night (omlx#1081).

# `proc_pid_rusage(pid, RUSAGE_INFO_V0, &info)` returns 0; `ri_phys_footprint` is the eighth counter behind a UUID of 16
# bytes, at 72 (Apple's <sys/resource.h>). Limits count by it; it was 1 to 1.25 GB over resident memory (MTPLX#500).

# After command buffers that timed out Metal ignores what the process submits, with the words "Ignored (for causing
# prior/excessive GPU errors)", and only a new process has the GPU again (omlx#3706, macOS 27; `MTLCommandBufferError`).

# MLX 0.32 has wheels for macOS 14 and newer alone (its files in the package index).


def guess_working_set(memory_gib: int) -> int:
    """The smallest figure that was seen on a Mac of that size, or two thirds up to 32 GiB and three quarters above."""
    known = WORKING_SETS_MIB.get(memory_gib)
    if known is not None:
        return known * MIB
    return memory_gib * GIB * 2 // 3 if memory_gib <= 32 else memory_gib * GIB * 3 // 4
