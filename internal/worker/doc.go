// Package worker executes attempts: it claims tasks from a server, runs them within its capacity, and
// reports their results. It repeats each report until it is answered, so a result is not lost while
// the process lives; reports of a lost lease are dropped. It does not decide about retries, and it
// imports neither the store nor the engine: it uses the API's contract, like workers in other
// languages.
package worker
