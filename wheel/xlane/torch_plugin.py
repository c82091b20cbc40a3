"""PyTorch/XLA finds this through the entry point `torch_xla.plugins`; the device is then `PJRT_DEVICE=XLANE`."""
from torch_xla.experimental import plugins

import xlane


class Plugin(plugins.DevicePlugin):
    def library_path(self):
        return xlane.path("lib", "libxlane-cpu.so")

    def physical_chip_count(self):
        return 1
