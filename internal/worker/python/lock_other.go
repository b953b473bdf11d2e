//go:build !unix

package python

// lockFile locks nothing: hosts need Linux.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }
