// Package host runs code of other languages in processes of their own, and speaks the frame protocol of
// docs/hosts.md with them. A host executes one task at a time and stays warm for the next one. A
// supervisor per host, a second process of this binary, is the subreaper of the host's descendants and
// kills all of them when the host ends.
//
// The package knows no leases and no servers: package worker decides what a task is and reports its end.
package host
