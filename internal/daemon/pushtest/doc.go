// Package pushtest has tests only: whole servers and the workers of push pools on loopback,
// from a trigger to the last callback.
package pushtest
