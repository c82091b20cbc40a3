"""Data-parallel training with PyTorch/XLA, a device per process, as torchrun starts them; alone, the whole batch on one
device. Prints the losses, the weights and a sum over the processes as JSON. Knows nothing of xlane."""
import json
import os
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    import torch.distributed as dist
    import torch_xla.distributed.xla_backend
    dist.init_process_group("xla", init_method="xla://")
device = torch_xla.device()
rank, world = xr.global_ordinal(), xr.world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
x, y = torch.randn(16, 8, generator=g), torch.randn(16, 1, generator=g)
x, y = x[rank::world].to(device), y[rank::world].to(device)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    xm.optimizer_step(optimizer)
    mean = xm.all_reduce("sum", loss.detach()) / world
    torch_xla.sync()
    losses.append(mean.item())
total = xm.all_reduce("sum", torch.ones(3, device=device))
torch_xla.sync()
result = {"rank": rank, "world": world, "losses": losses, "weights": [round(v, 6) for v
    in model[0].weight.cpu().flatten().tolist()], "sum": total.cpu().tolist()}
print("RESULT " + json.dumps(result) + "\n", end="", flush=True)             # one write: two ranks share the pipe
# the process with the coordination service leaves last: the others abort when it is gone
if world > 1:
    xm.rendezvous("end")
    if rank == 0:
        time.sleep(2)
    os._exit(0)
