#!/usr/bin/env bash
# The daemon under a real systemd: boots one in a container and does to it what operators do.
#
#   tests/systemd/run.sh BINARY        (just torture-systemd builds it first)
#
# Needs root, systemd-nspawn, debootstrap and a file system for cgroup v2. Where one is missing it
# says so and ends with 0. The container's tree is made once, with the mirror that apt uses here,
# and kept in target/systemd; nothing is written to it afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
    echo "skipped, nothing was tried: $*"
    exit 0
}

binary=$(realpath "${1:?the binary to test}")
work=${CARGO_TARGET_DIR:-target}/systemd
mkdir -p "$work"
work=$(realpath "$work")
tree=${TORTURE_TREE:-$work/tree}

[ "$(id -u)" = 0 ] || skip "not root"
command -v systemd-nspawn >/dev/null || skip "no systemd-nspawn (package systemd-container)"
grep -q cgroup2 /proc/self/mountinfo || skip "no cgroup v2 is mounted"

if [ ! -e "$tree/usr/bin/systemctl" ]; then
    command -v debootstrap >/dev/null || skip "no debootstrap to make a tree with"
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || skip "apt knows no mirror"
    echo "making a tree of $suite"
    rm -rf "$tree"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps "$suite" "$tree" "$mirror" \
        >"$work/debootstrap.log" 2>&1 || skip "debootstrap failed, see $work/debootstrap.log"
fi

# What the container sees besides its tree: the binary, what we ship, and where it tells.
given=$(mktemp -d "$work/given.XXXXXX")
trap 'rm -rf "$given"' EXIT
cp "$binary" "$given/handoffd"
cp -R systemd packaging tests/systemd/inside.sh tests/systemd/specialist.sh "$given/"
mkdir "$given/units" "$given/said"
cat >"$given/units/torture.service" <<'UNIT'
[Unit]
Description=What is tried
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /given/inside.sh
StandardOutput=append:/given/said/steps
StandardError=append:/given/said/steps
ExecStopPost=/bin/sh -c 'journalctl -u handoffd --no-pager >/given/said/journal; systemctl --no-block poweroff'
TimeoutStartSec=10min
UNIT

# One hierarchy inside, also where the machine mounts the old ones beside it. Registering with a
# manager of machines is left out: there may be none.
status=0
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout --kill-after=20 600 systemd-nspawn \
    --quiet --directory="$tree" --volatile=overlay --register=no --keep-unit --private-network \
    --bind="$given:/given" --bind-ro="$given/units/torture.service:/etc/systemd/system/torture.service" \
    --console=pipe --boot -- systemd.unit=torture.service systemd.wants=multi-user.target \
    </dev/null >"$work/console.log" 2>&1 || status=$?

if [ ! -s "$given/said/steps" ]; then
    tail -n 5 "$work/console.log"
    skip "no systemd could be booted here (status $status), see $work/console.log"
fi
cp "$given/said/"* "$work/"
cat "$work/steps"
if ! grep -qx 'all fine' "$work/steps"; then
    echo "a step failed; the daemon's journal is $work/journal" >&2
    exit 1
fi
