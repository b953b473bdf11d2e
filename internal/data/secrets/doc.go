// Package secrets reads secrets from where a worker has them: its environment, a directory, Vault. It
// decides by the worker's rules who may read which, and never logs a value.
package secrets
