// Package requests sends a server tens of thousands of invalid and unusual requests, to every path
// and every method of the contract: unexpected values, valid requests with one change, JSON that
// breaks parsers, unusual headers, and keys that are valid, insufficient, wrong or missing. It has
// tests only.
//
// The server must answer each request without an internal error, return errors in the common
// format, log no panic, and leak no resources. A seed determines the requests, and a failure names
// it: SERVO_REQUESTS_SEED repeats them, and SERVO_REQUESTS sets their number.
//
// A second test lets many tenants share few connections while calls are cancelled and panic: each
// tenant sees its own rows only, and a released connection keeps no tenant.
package requests
