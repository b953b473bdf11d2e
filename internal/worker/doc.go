// Package worker executes attempts: it claims tasks from a server, runs them in its slots,
// and says what became of them. Everything that it says is repeated until it is answered,
// so a finished result is not lost while the process lives; what a lease that is over has
// to say is dropped. It never decides whether a task is tried again, and it knows neither
// the store nor the engine: it speaks the API's contract, like workers in other languages.
package worker
