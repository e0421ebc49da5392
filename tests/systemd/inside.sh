#!/usr/bin/env bash
# Runs as a service in the container. Prints one line for each step; the first that fails ends it.
set -euo pipefail

root=/var/lib/handoffd
unit=handoffd.service
drop_ins=/etc/systemd/system/$unit.d

ok() { echo "ok: $*"; }
fail() {
    echo "failed: $*"
    systemctl status --no-pager --lines=20 "$unit" || true
    exit 1
}

# Waits for a condition, for at most a minute.
await() {
    for _ in $(seq 600); do
        if eval "$1"; then return 0; fi
        sleep 0.1
    done
    fail "waited too long for: $1"
}

of_unit() { systemctl show --value --property="$1" "$unit"; }
main_pid() { of_unit MainPID; }
is_up() { [ "$(of_unit ActiveState)" = active ]; }

# Drops a request for a specialist that works for so many seconds.
submit() {
    local request='{"target": {"agent_id": "@worker"}, "input": {"data": {"seconds": '$2'}}}'
    echo "$request" >"$root/handoffs/pending/.$1.tmp"
    chown handoffd: "$root/handoffs/pending/.$1.tmp"
    mv "$root/handoffs/pending/.$1.tmp" "$root/handoffs/pending/$1.json"
}

begun() { [ -s "$root/pids.$1" ]; }
completed() { [ -e "$root/handoffs/completed/$1.json" ]; }

# It has completed, and by the one process that it was begun with.
completed_at_once() {
    await "completed $1"
    [ "$(wc -l <"$root/pids.$1")" = 1 ] || fail "$1 was begun $(wc -l <"$root/pids.$1") times"
    grep -q "\"pid\": $(cat "$root/pids.$1")" "$root/handoffs/completed/$1.json" || fail "$1 is another's"
}

configure() {
    cat >"$root/handoffd.toml" <<TOML
daemon.on_stop = "$1"
defaults.kill_grace = "1s"
specialists."@worker".command = ["sh", "$root/specialist.sh"]
TOML
}

# Only what would make this take minutes is changed.
quicken() {
    mkdir -p "$drop_ins"
    printf '[Service]\nWatchdogSec=5\nRestartSec=1\n' >"$drop_ins/90-quick.conf"
}

install_all() {
    install -m755 /given/handoffd /usr/bin/handoffd
    install -m644 /given/systemd/$unit /etc/systemd/system/$unit
    install -Dm644 /given/packaging/sysusers.conf /usr/lib/sysusers.d/handoffd.conf
    systemd-sysusers handoffd.conf
    install -d -o handoffd -g handoffd -m750 "$root"
    install -m755 /given/specialist.sh "$root/specialist.sh"
    configure finish
    quicken
    systemctl daemon-reload
}

start_and_ready() {
    systemctl start "$unit"
    is_up || fail "start returned, and it is $(of_unit ActiveState)"
    submit "$1-first" 0
    completed_at_once "$1-first"
    ok "$1: started, ready ($(of_unit StatusText)), a handoff completed"
}

# An attempt is in a control group of its own, below the service's.
fence() {
    local group
    group=$(sed -n 's/.*"cgroup": "\([^"]*\)".*/\1/p' "$root/handoffs/completed/$1-first.json" | head -n 1)
    case $2:$group in
    group:*/$unit/handoffd-*/*) ok "$1: each attempt has its control group, $group" ;;
    minder:*/$unit) ok "$1: attempts share the service's control group, and have minders" ;;
    *) fail "$1: an attempt was in $group" ;;
    esac
}

kill_9() {
    local before
    before=$(of_unit NRestarts)
    submit "$1-killed" 4
    await "begun $1-killed"
    kill -9 "$(main_pid)"
    await '[ "$(of_unit NRestarts)" -gt '"$before"' ] && is_up'
    completed_at_once "$1-killed"
    ok "$1: kill -9: started again by systemd, the attempt was adopted and completed"
}

watchdog() {
    local before
    before=$(of_unit NRestarts)
    submit watched 12
    await 'begun watched'
    kill -STOP "$(main_pid)"
    await '[ "$(of_unit NRestarts)" -gt '"$before"' ] && is_up'
    journalctl -u "$unit" --no-pager | grep -qi 'watchdog timeout' || fail "it was not the watchdog"
    completed_at_once watched
    ok "watchdog: a stopped loop was killed and started again, the attempt was adopted and completed"
}

reload() {
    local pid
    pid=$(main_pid)
    echo 'specialists."@new".command = ["true"]' >>"$root/handoffd.toml"
    systemctl reload "$unit"
    await "journalctl -u $unit --no-pager --output=cat | grep -qi reload"
    echo '{"target": {"agent_id": "@new"}}' >"$root/handoffs/pending/reloaded.json"
    await 'completed reloaded'
    [ "$(main_pid)" = "$pid" ] || fail "a reload started it anew"
    ok "reload: the same process runs a specialist that is new in its configuration"
}

stop_while_one_runs() {
    submit stopped 3
    await 'begun stopped'
    systemctl stop "$unit"
    [ "$(of_unit Result)" = success ] || fail "the stop ended with $(of_unit Result)"
    completed stopped || fail "the stop did not wait for its specialist"
    completed_at_once stopped
    await '! pgrep -u handoffd >/dev/null'
    ok "stop while a specialist runs: waited for, completed, nothing is left"
}

upgrade() {
    local pid
    configure detach
    systemctl start "$unit"
    pid=$(main_pid)
    submit upgraded 8
    await 'begun upgraded'
    install -m755 /given/handoffd /usr/bin/handoffd.new
    mv /usr/bin/handoffd.new /usr/bin/handoffd
    systemctl restart "$unit"
    is_up || fail "it is $(of_unit ActiveState) after the upgrade"
    [ "$(main_pid)" != "$pid" ] || fail "it is the old one"
    completed upgraded && fail "the restart waited for its specialist"
    kill -0 "$(cat "$root/pids.upgraded")" || fail "the restart ended its specialist"
    completed_at_once upgraded
    ok "upgrade with on_stop = \"detach\": the new daemon adopted what the old one had begun"
    configure finish
    systemctl stop "$unit"
}

# The keeper of the last daemon is still there, and goes on with what systemd has left of its groups.
restart_at_once() {
    start_and_ready again
    fence again group
    systemctl stop "$unit"
}

# The next keeper is born under the profile; one that has nothing to keep leaves after a second.
use_profile() {
    await '! pgrep -u handoffd >/dev/null'
    rm -f "$drop_ins/50-profile.conf"
    [ "$1" = none ] || install -Dm644 "/given/systemd/profiles/$1.conf" "$drop_ins/50-profile.conf"
    systemctl daemon-reload
}

# systemd's own opinion of a profile: no complaint, and no more exposed than this.
analyze() {
    local exposure
    systemd-analyze verify --man=no --recursive-errors=yes "$unit" || fail "verify: $1"
    # The threshold is in tenths.
    exposure=$(systemd-analyze security --no-pager --offline=true --threshold="$2" \
        "/etc/systemd/system/$unit" | sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\).*/\1/p') ||
        fail "security: $1 is at $exposure, above $2 tenths"
    ok "$1: verified; exposure $exposure"
}

install_all
start_and_ready none
fence none group
reload
kill_9 none
watchdog
stop_while_one_runs
upgrade
restart_at_once
for profile in agents offline; do
    use_profile $profile
    start_and_ready $profile
    case $profile in
    agents) fence $profile group ;;
    offline) fence $profile minder ;;
    esac
    kill_9 $profile
    systemctl stop "$unit"
done
rm "$drop_ins/90-quick.conf"
use_profile agents
analyze agents 20
use_profile offline
analyze offline 10
echo 'all fine'
