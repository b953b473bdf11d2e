// Package batch groups commands into transactions: commands that wait at the same time are applied
// together, and each gets its own answer. It knows nothing about the commands.
package batch
