//go:build !unix

package worker

import (
	"os"
	"os/exec"

	"go.arco.dev/servo/internal/base/fault"
)

// User is the user that commands run as.
type User struct{}

// LookupUser refuses every user: on this system commands run as the worker's own user.
func LookupUser(field, _ string) (*User, error) {
	return nil, fault.Invalid(field, "this system cannot run commands as another user", "remove the option")
}

func (*User) own(string) error { return nil }

func (*User) become(*exec.Cmd, string) {}

// Become changes nothing.
func (*User) Become(*exec.Cmd) {}

func (*User) openResult(name string) (*os.File, error) { return os.Open(name) }
