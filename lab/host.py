"""What figures were measured on. No torch."""

import platform
import re
from pathlib import Path


def processor() -> str:
    """Its name as Linux tells it, else as Python does."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), re.M) if info.is_file() else []
    return names[0] if names else platform.processor()
