"""Gives a container its own users, host name and file system, then becomes its command. Standard library only.

`python -I -S enclosure.py PLAN PROGRAM ARGUMENT…`, where PLAN is JSON:

    {"user": 10001, "group": 10001, "hostname": "api-0", "read_only": true, "stage": "/state/stage", "folder": "/",
     "mounts": [["/state/volumes/u1/tmp", "/tmp", false]], "kept": ["/home/me/.venv"]}

The process makes user, mount and UTS namespaces, so it needs no rights on the machine. Its root file system is the root
file system of the machine, in which each mount `[source, target, read_only]` is bound to its target. If the machine
lacks a folder on the way to a target, the folder is made in memory. `read_only` makes everything but the mounts
unwritable. `kept` are paths that stay visible below a mount, such as the folder of the Python interpreter. In the
namespace the user is `user`; on the machine it is the caller.

PLAN `{"join": PID, "folder": "/"}` runs the command in the namespaces of the enclosed process PID; PLAN `{}` only tries
to make namespaces.
"""

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

_NEW_USERS, _NEW_MOUNTS, _NEW_HOSTNAME = 0x10000000, 0x00020000, 0x04000000
_BIND, _RECURSIVE, _PRIVATE, _UNBINDABLE = 0x1000, 0x4000, 0x40000, 0x20000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_READ_ONLY = 442, -100, 0x8000, 1

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> None:
    plan: dict[str, Any] = json.loads(arguments[0])
    try:
        if "join" in plan:
            _join(plan["join"])
        else:
            _own_namespaces(plan.get("user"), plan.get("group"))
            if not plan:
                return
            _furnish(plan)
        os.chdir(plan["folder"])
        os.execvp(arguments[1], list(arguments[1:]))  # noqa: S606 - its purpose
    except OSError as problem:
        what = f" ({problem.filename})" if problem.filename else ""
        print(f"enclosure: {problem.strerror}{what}", file=sys.stderr)
        sys.exit(126)


def _own_namespaces(user: int | None, group: int | None) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USERS | _NEW_MOUNTS | _NEW_HOSTNAME), "unshare")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid if user is None else user} {uid} 1")
    _write("/proc/self/gid_map", f"{gid if group is None else group} {gid} 1")
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)


def _join(pid: int) -> None:
    opened = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("user", "mnt", "uts")]
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    for namespace in opened:
        _check(_libc.setns(namespace, 0), "setns")
    os.fchdir(root)
    os.chroot(".")


def _furnish(plan: dict[str, Any]) -> None:
    stage: str = plan["stage"]
    mounts = sorted((source, _resolved(target), read_only) for source, target, read_only in plan["mounts"])
    mounts.sort(key=lambda mount: mount[1].count("/"))
    _mount("tmpfs", stage, "tmpfs", 0)
    _mount(None, stage, None, _UNBINDABLE)  # else the root would hold itself
    targets = [target for _, target, _ in mounts]
    outer = [one for one in targets if not any(one.startswith(f"{other}/") for other in targets)]
    _show_with_gaps("/", stage, [one.strip("/").split("/") for one in outer])
    for source, target, _ in mounts:
        if target in outer:
            _make_room(source, stage + target)
    if plan["read_only"]:
        _make_read_only(stage, _AT_RECURSIVE)
    for source, target, _ in mounts:
        _place(source, stage + target)
    for path in plan["kept"]:
        if any(f"{path}/".startswith(f"{target}/") for target in targets):
            _place(path, stage + path)
            if plan["read_only"]:
                _make_read_only(stage + path, _AT_RECURSIVE)
    for _, target, read_only in mounts:
        if read_only:
            _make_read_only(stage + target, 0)
    name = plan["hostname"].encode()
    _check(_libc.sethostname(name, len(name)), "sethostname")
    os.chroot(stage)


def _show_with_gaps(host: str, here: str, gaps: list[list[str]]) -> None:
    """Make the content of the folder `host` visible in the folder `here`, except for the paths `gaps`. Something else
    will be mounted at these paths.
    """
    below: dict[str, list[list[str]]] = {}
    for first, *rest in gaps:
        below.setdefault(first, []).append(rest)
    for name in os.listdir(host) if os.path.isdir(host) else ():  # noqa: PTH112, PTH208 - pathlib takes as long to load as all this
        if name not in below:
            _show(os.path.join(host, name), os.path.join(here, name))  # noqa: PTH118
    for name, rests in below.items():
        if all(rests):
            os.mkdir(os.path.join(here, name))  # noqa: PTH102, PTH118
            _show_with_gaps(os.path.join(host, name), os.path.join(here, name), rests)  # noqa: PTH118


def _show(source: str, target: str) -> None:
    if os.path.islink(source):  # noqa: PTH114
        os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211
    else:
        _place(source, target)


def _place(source: str, target: str) -> None:
    """Mount the folder or file `source` at `target`, which is created if necessary."""
    _make_room(source, target)
    _mount(source, target, None, _BIND | _RECURSIVE if os.path.isdir(source) else _BIND)  # noqa: PTH112


def _make_room(source: str, target: str) -> None:
    if os.path.isdir(source):  # noqa: PTH112
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    elif not os.path.exists(target):  # noqa: PTH110
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _resolved(path: str) -> str:
    """Return the path without symbolic links of the machine; for example, /var/run becomes /run."""
    return os.path.realpath(path)


def _make_read_only(path: str, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(_ATTR_READ_ONLY, 0, 0, 0)
    _check(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, ctypes.sizeof(attributes)), path)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    _check(_libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), None), target)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main(sys.argv[1:])
