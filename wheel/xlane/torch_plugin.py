"""PyTorch/XLA finds this through the entry point `torch_xla.plugins`; the device is then `PJRT_DEVICE=XLANE`. Under torchrun the processes share one client."""
import os

from torch_xla.experimental import plugins

import xlane


class Plugin(plugins.DevicePlugin):
    def library_path(self):
        return xlane.path("lib", "libxlane-cpu.so")

    def physical_chip_count(self):
        return 1

    def client_create_options(self):
        n = int(os.environ.get("WORLD_SIZE", 1))
        return {"node_id": int(os.environ.get("RANK", 0)), "num_nodes": n} if n > 1 else {}

    def requires_xla_coordinator(self):
        return int(os.environ.get("WORLD_SIZE", 1)) > 1
