// Package store is the only package with SQL. It has no rules of its own: package run decides what
// may happen to a run, and package engine when. The store locks and reads rows, writes the changes
// that it is given, and checks the number of written rows.
//
// sqlc generates Go from the statements in queries/. Sets of rows are passed as arrays: one
// statement per table, for any size of a batch.
package store
