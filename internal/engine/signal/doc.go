// Package signal wakes the goroutines of this server, and of others, that wait for a commit. A signal is
// a hint: it may be lost, so each of them also looks from time to time without one.
package signal
