// Package cli is the command line: it reads arguments, calls the packages that know, and
// prints what they say. It has no rules of its own.
//
// Exit codes are part of the interface and do not change:
//
//	0  done
//	1  it failed: the server refused, the database is away, the disk is full
//	2  bad usage or invalid input: the same command can never work
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
// --output through addOutput and prints through render. Its scenarios, good and bad, are
// scripts under testdata/script.
package cli
