// Package cli is the command line: it reads arguments, calls a server or other packages, and prints
// their answers. It has no rules of its own.
//
// Exit codes are part of the interface and do not change:
//
//	0  done
//	1  failure: the server refused, the database is unavailable, the disk is full
//	2  bad usage or invalid input: the same command can never succeed
//	3  the watched run did not succeed
//	4  unknown tenant, run, task, asset or pipeline
//	5  no server answers, or not now
//	6  the server refuses the key of the worker
//
// Errors go to standard error, one line for each mistake:
//
//	error: FIELD: MESSAGE (REMEDY) [CODE]
//
// # Adding a command
//
// A command that calls a server is a spec (texts, flags, tenant, completion) and a function:
// newShow prints the answer of one call, newList prints a list as a table of columns, newDelete
// deletes, newCall does anything else. Their JSON is that of REST. A command without a server is a
// *cobra.Command with streams and context of cobra (cmd.InOrStdin, cmd.OutOrStdout,
// cmd.ErrOrStderr, cmd.Context); it takes --output through addOutput and prints through render.
// Commands return faults and never exit or print errors themselves. They read variables and
// relative paths through environmentOf. group builds a command that only contains others; New lists
// all of them. Scenarios, good and bad, are scripts: under testdata/script without a server, under
// testdata/remote with one, under testdata/process with processes.
package cli
