// Package output defines versions of outputs: where the files of an attempt lie, the marker that
// commits them, and the pointer that names the promoted version of a partition. The fencing token of
// the attempt alone decides which version is newer. The package is pure: it reads no file and no
// clock.
package output
