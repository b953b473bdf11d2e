#!/usr/bin/env bash
# Finds the tools that tests need beside Go, and installs missing ones where possible: the server
# binaries of PostgreSQL 15 or newer, PgBouncer, a C compiler for the race detector, Chromium for
# tests of the pages, and the programs that the guides call. It creates no cluster and starts no
# server: tests have private ones.
#
#   scripts/setup.sh             everything
#   scripts/setup.sh postgresql  only PostgreSQL, which `servo dev` needs
#
# With SERVO_DATABASE_URL an existing server is used. SERVO_PG_BIN sets the directory of the
# PostgreSQL binaries.
set -euo pipefail

readonly oldest=15

# server_dir prints the directory of a PostgreSQL server that is new enough. It searches the same
# folders as package devpg.
server_dir() {
  local path dir version
  path=$(command -v postgres || true)
  for dir in ${SERVO_PG_BIN:-} ${path:+"$(dirname "$path")"} \
    /usr/lib/postgresql/*/bin \
    /usr/pgsql-*/bin \
    /usr/local/pgsql/bin \
    /opt/homebrew/opt/postgresql@*/bin \
    /usr/local/opt/postgresql@*/bin; do
    [[ -x $dir/postgres && -x $dir/initdb && -x $dir/pg_ctl ]] || continue
    version=$("$dir/postgres" --version 2>/dev/null | sed -nE 's/.* ([0-9]+)([^0-9].*)?$/\1/p')
    if [[ ${version:-0} -ge $oldest ]]; then
      echo "$dir"
      return
    fi
  done
}

has_compiler() {
  local cc=${CC:-gcc}
  command -v c++ >/dev/null && command -v "$cc" >/dev/null && echo '#include <stdlib.h>' | "$cc" -E - >/dev/null 2>&1
}

# as_root runs a command as root, without a password prompt.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

can_install() {
  command -v apt-get >/dev/null &&
    { [[ $(id -u) -eq 0 ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null
}

# install_postgresql installs the server with automatic creation of a cluster disabled, and
# restores that setting afterwards.
install_postgresql() {
  local drop_in=/etc/postgresql-common/createcluster.d/servo-setup.conf
  apt_install postgresql-common
  as_root mkdir -p "$(dirname "$drop_in")"
  # shellcheck disable=SC2064 # expand the name now
  trap "as_root rm -f '$drop_in'" EXIT
  echo 'create_main_cluster = false' | as_root tee "$drop_in" >/dev/null
  apt_install postgresql
}

has_pgbouncer() {
  command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]] # outside the PATH of ordinary users
}

has_browser() { # the names that the tests of the pages look for
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    [[ -n ${SERVO_BROWSER:-} ]]
}

has_venv() { # Debian has it in a package of its own
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null
}

# install_pgbouncer installs PgBouncer with automatic start of services disabled, and restores that
# setting afterwards.
install_pgbouncer() {
  local policy=/usr/sbin/policy-rc.d
  if [[ -e $policy ]]; then
    apt_install pgbouncer
    return
  fi
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod +x "$policy"
  local failed=0
  apt_install pgbouncer || failed=$?
  as_root rm -f "$policy"
  return "$failed"
}

# advise prints the command to install missing tools, and exits.
advise() {
  local missing=$1 apt_packages=$2 brew_packages=$3 dnf_packages=$4
  echo "setup: $missing. Install it with:" >&2
  if command -v apt-get >/dev/null; then
    echo "  sudo apt-get update && sudo apt-get install -y $apt_packages" >&2
  elif command -v brew >/dev/null; then
    echo "  brew install $brew_packages" >&2
  elif command -v dnf >/dev/null; then
    echo "  sudo dnf install -y $dnf_packages" >&2
  else
    echo "  the package manager of this system: $apt_packages (Debian's names)" >&2
  fi
  exit 1
}

what=${1:-all}
case $what in
all | postgresql) ;;
*)
  echo "setup: unknown argument $what; pass none or postgresql" >&2
  exit 2
  ;;
esac

need_postgresql=false
need_compiler=false
need_pgbouncer=false
missing_programs=() # whose packages have their names
if [[ $what == postgresql ]]; then
  # an existing server does not help: `servo dev` runs its own
  [[ -n $(server_dir) ]] || need_postgresql=true
else
  [[ -n ${SERVO_DATABASE_URL:-} || -n $(server_dir) ]] || need_postgresql=true
  has_compiler || need_compiler=true
  has_pgbouncer || need_pgbouncer=true
  for program in curl python3; do
    command -v "$program" >/dev/null || missing_programs+=("$program")
  done
  has_venv || missing_programs+=(python3-venv)
  has_browser || missing_programs+=(chromium)
fi

if ! $need_postgresql && ! $need_compiler && ! $need_pgbouncer && [[ ${#missing_programs[@]} -eq 0 ]]; then
  exit 0
fi

if can_install; then
  as_root apt-get update -q </dev/null
  if $need_compiler; then
    apt_install gcc g++ libc6-dev
  fi
  if [[ ${#missing_programs[@]} -gt 0 ]]; then
    apt_install "${missing_programs[@]}"
  fi
  if $need_postgresql; then
    install_postgresql
  fi
  if $need_pgbouncer; then
    install_pgbouncer
  fi
fi

if $need_compiler && ! has_compiler; then
  advise "no C and C++ compiler, which the race detector and DuckDB need" "gcc g++ libc6-dev" "gcc gcc-c++" "gcc"
fi
for program in "${missing_programs[@]}"; do
  if [[ $program == python3-venv ]]; then
    has_venv || advise "no module venv of Python, which tests of the SDK need" "python3-venv" "python3" "python3"
    continue
  fi
  command -v "$program" >/dev/null ||
    advise "no $program, which commands of the guides call" "$program" "$program" "$program"
done
if $need_pgbouncer && ! has_pgbouncer; then
  advise "no PgBouncer, which tests put in front of the database" "pgbouncer" "pgbouncer" "pgbouncer"
fi
if $need_postgresql && [[ -z $(server_dir) ]]; then
  if can_install; then
    echo "setup: the distribution's PostgreSQL is older than $oldest; take a newer one from apt.postgresql.org:" >&2
    echo "  sudo /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y && sudo apt-get install -y postgresql-17" >&2
    exit 1
  fi
  advise "no PostgreSQL server of version $oldest or newer" "postgresql" "postgresql@17" "postgresql-server postgresql-contrib"
fi
if $need_postgresql; then
  echo "setup: PostgreSQL in $(server_dir)"
fi
