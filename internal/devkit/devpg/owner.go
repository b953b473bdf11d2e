package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"go.arco.dev/servo/internal/base/fault"
)

// owner is the user who runs PostgreSQL. It is the caller, except that initdb and postgres
// refuse root: then it is a user without privileges.
type owner struct {
	uid, gid uint32
	dropped  bool // the caller is root and the programs must run as another user
}

// ownerOf returns the user of the cluster in dir, which may not exist yet. For root it is the owner of
// the existing data, else the user "postgres", else the user "nobody".
func ownerOf(dir string) (owner, error) {
	self := owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())} //nolint:gosec // ids are not negative on unix
	data, err := statOwner(filepath.Join(dir, dataName))
	exists := dir != "" && err == nil
	if self.uid != 0 {
		if exists && data.uid != self.uid {
			return owner{}, fault.New(fault.Conflict,
				fmt.Sprintf("the cluster in %s belongs to user id %d, and PostgreSQL runs only as its owner", dir, data.uid),
				fault.Field("dir"), fault.Remedy("use another directory, or change its owner"))
		}
		return self, nil
	}
	if exists && data.uid != 0 {
		data.dropped = true
		return data, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return owner{}, fmt.Errorf("look up user %s: %w", name, err)
		}
		return owner{uid: uint32(uid), gid: uint32(gid), dropped: true}, nil
	}
	return owner{}, fault.New(fault.Unavailable, "PostgreSQL refuses to run as root, and there is neither a user \"postgres\" nor a user \"nobody\"",
		fault.Remedy("run this as a user other than root"))
}

// statOwner is who owns a file.
func statOwner(path string) (owner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return owner{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, fmt.Errorf("%s: the owner cannot be read on this system", path)
	}
	return owner{uid: stat.Uid, gid: stat.Gid}, nil
}

// command is a program run as the owner, in a session of its own, so that Ctrl-C in the
// terminal reaches the parent alone and the parent decides the order of the end.
func (o owner) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the programs are found by this package
	cmd.Dir = "/"                                     // the caller's directory may be closed to the owner
	cmd.Env = cleanEnvironment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.dropped {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return cmd
}

// cleanEnvironment drops what would change PostgreSQL behind our back (PGPORT, PGDATA …) or
// the language of the messages that this package reads.
func cleanEnvironment(environment []string) []string {
	kept := []string{"LC_ALL=C"}
	for _, entry := range environment {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// makeOwned makes a directory that belongs to the owner.
func (o owner) makeOwned(dir string, mode os.FileMode) error {
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil { // regardless of the umask
		return err
	}
	if !o.dropped {
		return nil
	}
	return os.Chown(dir, int(o.uid), int(o.gid))
}

// openPath makes dir itself passable for the owner and refuses if one of the directories
// above is not: those are not ours to open.
func (o owner) openPath(dir string) error {
	if !o.dropped {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !o.passes(dir) {
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return err
		}
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if !o.passes(above) {
			return fault.New(fault.Conflict,
				fmt.Sprintf("user id %d, who must run PostgreSQL instead of root, cannot pass through %s", o.uid, above),
				fault.Field("dir"),
				fault.Remedy("use a directory elsewhere, or run `chmod o+x "+above+"`"))
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// passes reports whether the owner may traverse a directory, by its mode bits.
func (o owner) passes(dir string) bool {
	holder, err := statOwner(dir)
	if err != nil {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case holder.uid == o.uid:
		return mode&0o100 != 0
	case holder.gid == o.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
