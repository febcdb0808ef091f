"""`nvidia-smi` of the stand-in: lists the stand-in GPUs of this container in the real program's formats."""

import sys
from collections.abc import Callable, Mapping, Sequence

from . import NOTICE
from .gpus import Gpu, NoDriverError, visible_gpus

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
EXIT_BAD_USAGE = 2
EXIT_NO_DEVICES = 6
EXIT_NO_DRIVER = 9

HELP = f"""NVIDIA System Management Interface -- {NOTICE}.

    nvidia-smi
    nvidia-smi -L | --list-gpus
    nvidia-smi --query-gpu=FIELD[,FIELD...] --format=csv[,noheader][,nounits]
"""

# Field -> (value, unit). Values that a stand-in GPU does not have read as a real, idle data-centre GPU's.
FIELDS: Mapping[str, tuple[Callable[[Gpu], object], str]] = {
    "index": (lambda gpu: gpu.index, ""),
    "name": (lambda gpu: gpu.name, ""),
    "uuid": (lambda gpu: gpu.uuid, ""),
    "pci.bus_id": (lambda gpu: f"00000000:00:{6 + gpu.index:02X}.0", ""),
    "compute_cap": (lambda gpu: gpu.compute_cap, ""),
    "memory.total": (lambda gpu: gpu.memory_total_mib, "MiB"),
    "memory.free": (lambda gpu: gpu.memory_total_mib - gpu.memory_reserved_mib, "MiB"),
    "memory.used": (lambda gpu: 0, "MiB"),
    "memory.reserved": (lambda gpu: gpu.memory_reserved_mib, "MiB"),
    "driver_version": (lambda gpu: gpu.driver_version, ""),
    "mig.mode.current": (lambda gpu: "Disabled", ""),
    "ecc.mode.current": (lambda gpu: "Enabled", ""),
    "persistence_mode": (lambda gpu: "Enabled", ""),
    "compute_mode": (lambda gpu: "Default", ""),
    "count": (lambda gpu: 1, ""),
}
ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}


def query_csv(gpus: Sequence[Gpu], fields: Sequence[str], *, header: bool, units: bool) -> str:
    """The table of `--query-gpu`; raises KeyError with the name of a field that does not exist."""
    known = [ALIASES.get(field, field) for field in fields]
    for field, name in zip(fields, known, strict=True):
        if name not in FIELDS:
            raise KeyError(field)
    rows = []
    if header:
        rows.append(", ".join(f"{name} [{FIELDS[name][1]}]" if units and FIELDS[name][1] else name for name in known))
    for gpu in gpus:
        cells = []
        for name in known:
            value, unit = FIELDS[name]
            cells.append(f"{value(gpu)} {unit}" if units and unit else str(value(gpu)))
        rows.append(", ".join(cells))
    return "".join(row + "\n" for row in rows)


def list_gpus(gpus: Sequence[Gpu]) -> str:
    return "".join(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})\n" for gpu in gpus)


def table(gpus: Sequence[Gpu]) -> str:
    """The overview that a person reads; it says first that these GPUs are a stand-in."""
    rule = "+" + "-" * 77 + "+"
    lines = [f"{NOTICE}.", rule]
    lines.append(f"| {'NVIDIA-SMI ' + gpus[0].driver_version + '  (STAND-IN, no GPU behind it)':<75} |")
    lines.append(rule)
    lines.append(f"| {'GPU  Name':<40} {'Compute':<9} {'Memory-Usage':>24} |")
    for gpu in gpus:
        usage = f"0MiB / {gpu.memory_total_mib}MiB"
        lines.append(f"| {f'{gpu.index:>3}  {gpu.name}':<40} {gpu.compute_cap:<9} {usage:>24} |")
    lines.append(rule)
    return "\n".join(lines) + "\n"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and standard output."""
    if any(argument in ("-h", "--help") for argument in arguments):
        return 0, HELP
    try:
        gpus = visible_gpus(environ)
    except NoDriverError:
        return EXIT_NO_DRIVER, NO_DRIVER
    except ValueError as error:
        return EXIT_NO_DRIVER, f"STAND-IN nvidia-smi: {error}\n"
    if not gpus:
        return EXIT_NO_DEVICES, "No devices were found\n"
    if not arguments:
        return 0, table(gpus)
    if list(arguments) in (["-L"], ["--list-gpus"]):
        return 0, list_gpus(gpus)

    fields: list[str] | None = None
    formats: list[str] | None = None
    selected: Sequence[Gpu] = gpus
    remaining = list(arguments)
    while remaining:
        option, separator, value = remaining.pop(0).partition("=")
        if option in ("-i", "--id", "--query-gpu", "--format") and not separator and remaining:
            value = remaining.pop(0)
        if option == "--query-gpu":
            fields = [field.strip() for field in value.split(",")]
        elif option == "--format":
            formats = [part.strip() for part in value.split(",")]
        elif option in ("-i", "--id"):
            wanted = value.split(",")
            selected = [gpu for gpu in gpus if str(gpu.index) in wanted or gpu.uuid in wanted]
            if not selected:
                return EXIT_NO_DEVICES, "No devices were found\n"
        else:
            return EXIT_BAD_USAGE, (
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
                f"STAND-IN nvidia-smi does not know {option}\n"
            )
    if fields is None or formats is None or "csv" not in formats:
        return EXIT_BAD_USAGE, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n"
    try:
        return 0, query_csv(selected, fields, header="noheader" not in formats, units="nounits" not in formats)
    except KeyError as error:
        return EXIT_BAD_USAGE, f'Field "{error.args[0]}" is not a valid field to query.\n'


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    status, text = run(arguments, environ)
    sys.stdout.write(text)
    return status
