// Package cli is the command line: it reads arguments, calls the packages that know, and
// prints what they say. It has no rules of its own.
//
// Exit codes are part of the interface and do not change:
//
//	0  done
//	1  it failed: the server refused, the database is away, the disk is full
//	2  bad usage or invalid input: the same command can never work
//	3  the run that was waited for did not succeed
//	4  there is no such tenant, run, task, asset or pipeline
//	5  no server answers, or not now
//
// Errors go to standard error, one line for each mistake:
//
//	error: FIELD: MESSAGE (REMEDY) [CODE]
//
// # Adding a command
//
// A command is a file with one constructor that returns a *cobra.Command, and a line in
// New. It takes its streams from cobra (cmd.InOrStdin, cmd.OutOrStdout, cmd.ErrOrStderr)
// and its context from cmd.Context, returns faults and never exits or prints errors
// itself. A command that only holds others is made by group; exactly checks the number of
// arguments. One that prints data takes
// --output through addOutput and prints through render. One that talks to a server takes
// its flags through addRemote and addTenant, makes its RunE with run, and prints through
// session.show, so that its JSON is what REST answers. Scenarios, good and bad, are scripts:
// under testdata/script without a server, under testdata/remote with one.
package cli
