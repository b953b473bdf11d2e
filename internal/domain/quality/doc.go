// Package quality defines what an asset declares about its output: format and schema, checks, and
// whether a version that fails them is quarantined. It validates declarations, holds check results,
// and decides the gate. The package is pure: it reads no file and runs no check.
package quality
