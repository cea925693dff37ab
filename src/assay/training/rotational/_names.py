"""Parameter names as their author wrote them."""

from __future__ import annotations


def clean_name(name: str) -> str:
    """Drop what torch.compile, DistributedDataParallel, FSDP and activation checkpointing put into a parameter's name.

    Examples
    --------
    >>> clean_name("_orig_mod.module.layer1.weight")
    'layer1.weight'
    """
    for part in ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."):
        name = name.replace(part, "")
    return name.removeprefix("module.")
