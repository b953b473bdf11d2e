// Package requests sends a whole server tens of thousands of requests that nobody would think
// of, to every path and every call of the contract: values that no field expects, valid
// requests with something changed, JSON that breaks parsers, odd headers, keys that are good,
// weak, wrong or missing. It has tests only.
//
// Whatever comes, the server has an answer that is none of its own failures, says what is wrong
// in the one form that errors have, logs no panic, and holds on to nothing. What is sent is
// decided by a seed, which a failure names: SERVO_REQUESTS_SEED sends the same again, and
// SERVO_REQUESTS how many.
//
// And it lets many tenants share few connections, while calls are given up and panic: each
// tenant sees its own rows, and a connection that is given back is nobody's.
package requests
