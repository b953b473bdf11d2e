package cli

import (
	"context"
	"os"
	"path/filepath"
)

// Environment has the variables and the directory of a command, by default those of its process.
// Tests set it to run many commands in one process.
type Environment struct {
	Getenv func(name string) string
	Dir    string // base of relative paths; "" is the directory of the process
}

type environmentKey struct{}

// WithEnvironment gives the commands that run with the context an environment of their own.
func WithEnvironment(ctx context.Context, e Environment) context.Context {
	return context.WithValue(ctx, environmentKey{}, e)
}

// environmentOf returns the environment of a command, by default that of the process.
func environmentOf(ctx context.Context) Environment {
	if e, ok := ctx.Value(environmentKey{}).(Environment); ok {
		return e
	}
	return Environment{Getenv: os.Getenv}
}

// path returns the path of a file as the process can open it.
func (e Environment) path(name string) string {
	if name == "" || e.Dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(e.Dir, name)
}
