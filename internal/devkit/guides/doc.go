// Package guides tests the documentation. It has tests only: they read the
// README and the pages under docs/guides and docs/runbooks, write the files that the pages show, run their
// commands in a shell, in order, against a real server, and compare the output with that of
// the pages.
//
// The info string of a fenced block, which readers do not see, states its meaning:
//
//	```sh                  commands, typed one after another in one shell
//	```sh terminal=worker  another terminal: it runs until the page ends, or until the
//	                       page types something else there; Ctrl-C comes first then
//	```sh by-hand          not typed by the test, which lists all of these
//	```go file=main.go     a file, written where the shell is by then
//	```text                after commands: what they print
//	```json                likewise
//
// A block of any other kind is ignored. In expected output a … stands for anything
// within a line, and a line of … alone for any number of lines. Ids, times and durations
// are compared by their format, and several spaces as one, so that pages can show real output.
//
// Blocks in an HTML comment are run like the others, and readers do not see them: a
// runbook causes its failure there, and waits there for slow effects.
//
// Pages name the default addresses and a placeholder for the database; the tests replace
// them with real ones. Nothing outside of the scratch directory is written.
package guides
