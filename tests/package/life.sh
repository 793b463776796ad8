#!/bin/bash
# The life of the package, as root in a scratch system whose init is the argument, sysv or systemd: installed over the C
# daemon, installed afresh, upgraded with a lock held, stopped, removed and purged. Ends at the first thing that is wrong.
set -Eeuo pipefail
trap 'echo "FAILED in line $LINENO: $BASH_COMMAND"; show_log | tail -n 20' ERR

INIT=$1
OURS=(/packages/ours/*.deb)
NEXT=(/packages/next/*.deb)
THEIRS=(/packages/original/*.deb)
export DEBIAN_FRONTEND=noninteractive

step() { echo "== $INIT, $SECONDS s: $*"; }

# Both print much that is of no interest unless they fail.
install() { dpkg -i "$1" </dev/null >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; return 1; }; }

show_log() {
	if [ "$INIT" = systemd ]; then journalctl -q -o cat -u poolcounter; else cat /var/log/poolcounter.log; fi
}

wait_for() {
	for _ in $(seq 100); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	echo "in vain: $*"
	return 1
}

# Sends one request to the daemon at an address.
ask() {
	local reply
	{ exec 5<>"/dev/tcp/$1/7531"; } 2>/dev/null || { echo "no connection"; return; }
	echo "$2" >&5
	read -r -t 10 -u 5 reply || reply="no answer"
	exec 5>&-
	echo "$reply"
}

expect() { # WANTED ADDRESS REQUEST
	local reply
	reply=$(ask "$2" "$3")
	[ "$reply" = "$1" ] || { echo "$3 at $2: $reply and not $1"; return 1; }
}

refuses() { ! (exec 5<>"/dev/tcp/$1/7531") 2>/dev/null; }

pid() {
	if [ "$INIT" = systemd ]; then systemctl show -P MainPID poolcounter; else cat /run/poolcounter.pid; fi
}

is_logged() { show_log | grep "$1" >/dev/null; }

is_unprivileged() { [ "$(ps -o uid= -p "$(pid)")" -ne 0 ]; }

# Installs a package while a lock is held, which is held afterwards, in the same process.
upgrade_to() {
	local before reply
	before=$(pid)
	exec 7<>/dev/tcp/127.0.0.1/7531
	echo "ACQ4ME k 1 5 5" >&7
	read -r -t 10 -u 7 reply
	[ "$reply" = LOCKED ]
	install "$1"
	wait_for is_logged "$(poolcounter --version) has taken over"
	[ "$(pid)" = "$before" ]
	[ "$(readlink "/proc/$before/exe")" = /usr/sbin/poolcounter ]
	pgrep -x poolcounterd >/dev/null
	expect TIMEOUT 127.0.0.1 "ACQ4ME k 1 5 0"
	echo RELEASE >&7
	read -r -t 10 -u 7 reply
	[ "$reply" = RELEASED ]
	exec 7>&-
}

step "over the C daemon, whose arguments stand in a file of the administrator"
echo 'ARGS="-l 127.0.0.2"' >/etc/default/poolcounter
install "${THEIRS[0]}"
if [ "$INIT" = systemd ]; then
	[ "$(readlink "/proc/$(pid)/exe")" = /usr/bin/poolcounterd ]
fi
install "${OURS[0]}"
[ "$(cat /etc/default/poolcounter)" = 'ARGS="-l 127.0.0.2"' ]
expect LOCKED 127.0.0.2 "ACQ4ME k 1 5 5"
refuses 127.0.0.1
[ "$(readlink "/proc/$(pid)/exe")" = /usr/sbin/poolcounter ]
is_unprivileged
dpkg --purge poolcounter >/dev/null

step "over the C daemon as it comes, which listens on 0.0.0.0"
install "${THEIRS[0]}"
install "${OURS[0]}"
expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
expect LOCKED 127.0.0.2 "ACQ4ME k 1 5 5"
dpkg --purge poolcounter >/dev/null
userdel poolcounter-tls
userdel poolcounter
! getent group poolcounter >/dev/null || groupdel poolcounter

step "afresh"
install "${OURS[0]}"
for file in /usr/sbin/poolcounter /usr/bin/poolcounter /usr/bin/poolcounterd /etc/init.d/poolcounter \
	/usr/share/man/man1/poolcounter.1.gz /usr/share/man/man8/poolcounter.8.gz \
	/usr/share/man/man1/poolcounter-jobs.1.gz /usr/share/man/man5/poolcounter.toml.5.gz \
	/usr/share/bash-completion/completions/poolcounter /usr/share/zsh/vendor-completions/_poolcounter \
	/usr/share/fish/vendor_completions.d/poolcounter.fish \
	/lib/systemd/system/poolcounter.service /etc/default/poolcounter /etc/poolcounter.toml; do
	[ -s "$file" ] || { echo "$file is missing"; false; }
done
[ "$(readlink -f /usr/bin/poolcounterd)" = /usr/sbin/poolcounter ]
cmp /etc/poolcounter.toml /usr/share/poolcounter/poolcounter.toml
grep -qx 'ARGS=' /etc/default/poolcounter
expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
refuses 127.0.0.2
is_unprivileged
pgrep -x poolcounterd >/dev/null
[ "$(stat -c %a /run/poolcounter/admin.sock)" = 600 ]
poolcounter admin LOG debug
poolcounter admin LOG default
if [ "$INIT" = sysv ]; then
	[ "$(pgrep -x poolcounterd)" = "$(cat /run/poolcounter.pid)" ]
else
	[ "$(systemctl is-enabled poolcounter.service)" = enabled ]
	[ "$(systemctl is-enabled poolcounter.socket || true)" = disabled ]
fi

step "upgraded with a lock held"
echo "# of the administrator" >>/etc/poolcounter.toml
upgrade_to "${NEXT[0]}"
tail -n 1 /etc/poolcounter.toml | grep -qx "# of the administrator"

step "started, reloaded and stopped"
control() {
	if [ "$INIT" = systemd ]; then systemctl "$1" poolcounter; else /etc/init.d/poolcounter "$1" >/dev/null; fi
}
control status >/dev/null
before=$(pid)
control start
[ "$(pid)" = "$before" ]
control reload
wait_for expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
[ "$(pid)" = "$before" ]
control restart
[ "$(pid)" != "$before" ]
expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
control stop
refuses 127.0.0.1
status=0
control status >/dev/null || status=$?
[ "$status" = 3 ]
control stop
echo 'frobnicate = 1' >>/etc/poolcounter.toml
if [ "$INIT" = sysv ]; then
	if control start 2>/tmp/said; then false; fi
	grep 'there is no setting frobnicate' /tmp/said >/dev/null
else
	control start 2>/dev/null || true
	control stop
	is_logged 'there is no setting frobnicate'
fi
sed -i '/frobnicate/d' /etc/poolcounter.toml
control start
expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"


step "a reload with settings that are wrong fails, and says why"
before=$(pid)
echo 'gyre = 1' >>/etc/poolcounter.toml
if control reload 2>/tmp/said; then false; fi
if [ "$INIT" = sysv ]; then
	grep 'there is no setting gyre' /tmp/said >/dev/null
else
	wait_for is_logged 'there is no setting gyre'
fi
sed -i '/gyre/d' /etc/poolcounter.toml
control reload
[ "$(pid)" = "$before" ]
wait_for expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"

if [ "$INIT" = systemd ]; then
	step "looked after by systemd"
	[ "$(systemctl show -P ActiveState poolcounter)" = active ]
	[ "$(systemctl show -P StatusText poolcounter)" = "" ]
	# A stopped daemon gives no sign of life and is replaced. It listens again before the second is over.
	before=$(pid)
	mkdir -p /run/systemd/system/poolcounter.service.d
	printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/poolcounter.service.d/test.conf
	systemctl daemon-reload
	control restart
	before=$(pid)
	sleep 5
	[ "$(pid)" = "$before" ]
	control reload
	sleep 5
	[ "$(pid)" = "$before" ]
	kill -STOP "$before"
	is_another() { [ "$(pid)" != "$before" ] && [ "$(pid)" != 0 ]; }
	wait_for is_another
	wait_for expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
	rm -r /run/systemd/system/poolcounter.service.d
	systemctl daemon-reload

	step "at a local socket, in the directory that is its own"
	echo 'ARGS="--listen unix:/run/poolcounter/socket --socket-mode 666"' >/etc/default/poolcounter
	control restart
	[ "$(stat -c %a /run/poolcounter/socket)" = 666 ]
	refuses 127.0.0.1
	control reload
	wait_for is_logged "taken over.* listens on unix:/run/poolcounter/socket"

	step "with rules for users, whom the unit does not hide"
	cp /etc/poolcounter.toml /tmp/settings
	printf '[[access]]\nwho = ["user:nobody"]\nmay = ["pools"]\n' >>/etc/poolcounter.toml
	control reload
	lock_as() {
		setpriv --reuid "$1" --regid nogroup --clear-groups poolcounter exec --key u --server unix:/run/poolcounter/socket -- true
	}
	is_refused() { ! lock_as daemon 2>/dev/null; }
	wait_for is_refused
	lock_as nobody
	mv /tmp/settings /etc/poolcounter.toml
	control reload
	wait_for lock_as daemon
	echo 'ARGS=' >/etc/default/poolcounter

	step "with TLS in front, by a user of its own"
	install_file() { command install -D -m "$1" -o "$2" "/packages/$3" "/etc/ssl/$3"; }
	install_file 644 root tls.pem
	install_file 400 poolcounter-tls tls.key
	tls="--listen 127.0.0.1:7541 --to unix:/run/poolcounter/pools.sock --cert /etc/ssl/tls.pem --key /etc/ssl/tls.key"
	echo "ARGS=\"$tls\"" >/etc/default/poolcounter-tls
	echo 'ARGS="-l 127.0.0.1 -l proxy:unix:/run/poolcounter/pools.sock --socket-mode 660 --admin unix:/run/poolcounter/admin"' \
		>/etc/default/poolcounter
	control restart
	systemctl start poolcounter-tls
	over_tls() { poolcounter stats --server tls:127.0.0.1:7541 --tls /etc/ssl/tls.pem | grep '^uptime' >/dev/null; }
	wait_for over_tls
	tls_pid() { systemctl show -P MainPID poolcounter-tls; }
	[ "$(ps -o user:32= -p "$(tls_pid)")" = poolcounter-tls ]
	[ "$(ps -o user:32= -p "$(pid)")" = poolcounter ]
	# The terminator can connect to the pools, and cannot command the daemon, read its memory or signal it.
	as_terminator() { setpriv --reuid poolcounter-tls --regid poolcounter --clear-groups "$@"; }
	as_terminator test -w /run/poolcounter/pools.sock
	if as_terminator test -w /run/poolcounter/admin; then false; fi
	if as_terminator cat "/proc/$(pid)/maps" >/dev/null 2>&1; then false; fi
	if as_terminator kill -0 "$(pid)" 2>/dev/null; then false; fi
	if setpriv --reuid poolcounter --regid poolcounter --clear-groups cat /etc/ssl/tls.key >/dev/null 2>&1; then false; fi
	before=$(tls_pid)
	systemctl reload poolcounter-tls
	systemctl kill --kill-who=main --signal=USR1 poolcounter-tls
	control reload
	wait_for over_tls
	[ "$(tls_pid)" = "$before" ]
	systemd-analyze security --no-pager poolcounter-tls.service | tail -n 1
	systemctl stop poolcounter-tls
	rm /etc/default/poolcounter-tls
	echo 'ARGS=' >/etc/default/poolcounter

	step "activated by its socket, and reloaded"
	control stop
	systemctl start poolcounter.socket
	[ "$(systemctl is-active poolcounter.service || true)" = inactive ]
	expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
	before=$(pid)
	for _ in 1 2; do
		control reload
		wait_for expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
	done
	install "${OURS[0]}"
	wait_for is_logged "$(poolcounter --version) has taken over"
	expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
	[ "$(pid)" = "$before" ]
	[ "$(systemctl is-active poolcounter.socket)" = active ]
	control restart
	expect LOCKED 127.0.0.1 "ACQ4ME k 1 5 5"
	systemctl stop poolcounter.socket poolcounter.service
	control start
	systemd-analyze security --no-pager poolcounter.service | tail -n 1
fi

step "removed"
dpkg --remove poolcounter >/dev/null
refuses 127.0.0.1
if pgrep -x poolcounterd; then false; fi
[ ! -e /usr/bin/poolcounterd ]
[ -e /etc/poolcounter.toml ]

step "purged"
dpkg --purge poolcounter >/dev/null
for file in /etc/default/poolcounter /etc/poolcounter.toml /etc/init.d/poolcounter /etc/logrotate.d/poolcounter \
	/var/log/poolcounter.log /usr/share/poolcounter; do
	[ ! -e "$file" ] || { echo "$file is still there"; false; }
done
step "passed"
