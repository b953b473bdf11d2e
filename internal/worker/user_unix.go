//go:build unix

package worker

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"go.arco.dev/servo/internal/base/fault"
)

// User is the user that commands run as.
type User struct {
	uid, gid uint32
	home     string // "" if the system does not know the user
}

// LookupUser returns a user by name, or by number as UID or UID:GID. Only root may run commands as
// another user.
func LookupUser(field, text string) (*User, error) {
	refuse := func(message, remedy string) (*User, error) {
		return nil, fault.Invalid(field, message, remedy)
	}
	const remedy = "use the name of a user of this machine, or UID:GID such as 65534:65534"
	found, err := user.Lookup(text)
	if err != nil {
		uid, gid, _ := strings.Cut(text, ":")
		if known, err := user.LookupId(uid); err == nil && (gid == "" || gid == known.Gid) {
			found = known
		} else {
			found = &user.User{Uid: uid, Gid: gid}
		}
	}
	uid, badUser := strconv.ParseUint(found.Uid, 10, 32)
	gid, badGroup := strconv.ParseUint(found.Gid, 10, 32)
	switch {
	case badUser != nil || badGroup != nil:
		return refuse(fmt.Sprintf("unknown user %.100q", text), remedy)
	case uid == 0:
		return refuse("root can read the worker's key", "use a user without privileges")
	case os.Geteuid() != 0 && uint64(os.Geteuid()) != uid: //nolint:gosec // ids are not negative
		return refuse("only root may run commands as another user", "start the worker as root, or remove the option")
	}
	return &User{uid: uint32(uid), gid: uint32(gid), home: found.HomeDir}, nil
}

// own changes the owner of a task's directory to the user.
func (u *User) own(dir string) error {
	if u == nil {
		return nil
	}
	return os.Chown(dir, int(u.uid), int(u.gid))
}

// become makes a command run as the user, without the groups of the worker.
func (u *User) become(cmd *exec.Cmd, private string) {
	if u == nil {
		return
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: []uint32{}}
	}
	home := u.home
	if home == "" {
		home = private
	}
	cmd.Env = append(cmd.Env, "HOME="+home)
}

// Become makes a command run as the user.
func (u *User) Become(cmd *exec.Cmd) { u.become(cmd, os.TempDir()) }

// openResult opens the result file of a command. It follows no link and waits for no pipe: a command
// of another user must not choose which file the worker reads.
func (u *User) openResult(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // in the task's own directory
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if stat, ok := infoSys(info); err == nil && u != nil && (!ok || stat.Uid != u.uid) {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func infoSys(info fs.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return stat, ok
}
