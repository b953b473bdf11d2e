// Package store is the only place that knows SQL. It has no rules of its own: what may
// happen to a run is decided in package run, when it happens in package engine. It locks
// and reads rows, writes the difference it is given, and checks that as many rows were
// written as there should be.
//
// Static statements live in queries/ and become Go through sqlc; every set of rows goes in
// as arrays, one statement a table, whatever the size of the batch.
package store
