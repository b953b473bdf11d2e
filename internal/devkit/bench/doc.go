// Package bench measures Servo: how many tasks a second go through the whole path, and
// what each costs in statements, rows, log and processor time. It drives the engine the
// way servers and workers do; it never takes a short cut through the database.
package bench
