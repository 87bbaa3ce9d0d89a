"""A small torch training on the job's own GPU: saves weights, optimizer, step and random state; resumes bit for bit."""

import sys
from pathlib import Path

import makeway.job
import torch

STEPS = 400


def main() -> None:
    """Train, save every 20 steps, stop when asked, and write the final weights' digest at the end."""
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda")
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(11)
    start = 0
    with makeway.job.session() as job:
        saved = job.resume()
        if saved is not None:
            start = saved.step
            model.load_state_dict(saved.state["model"])
            optimizer.load_state_dict(saved.state["optimizer"])
            generator.set_state(saved.state["generator"])
        for step in range(start + 1, STEPS + 1):
            batch = torch.randn(256, 64, generator=generator).to(device)
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda._sleep(40_000_000)
            if step % 20 == 0 or job.stop_requested():
                state = {
                    "model": {name: value.cpu() for name, value in model.state_dict().items()},
                    "optimizer": optimizer.state_dict(),
                    "generator": generator.get_state(),
                }
                job.save(step, state, wait=True)
            if job.stop_requested():
                return
    weights = b"".join(value.detach().cpu().numpy().tobytes() for value in model.parameters())
    Path(sys.argv[1]).write_bytes(weights)


if __name__ == "__main__":
    main()
