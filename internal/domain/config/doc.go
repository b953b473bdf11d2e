// Package config is one tenant's use of a pipeline: what it runs with, when it fires, and what
// happens to the slots that it has. It is pure: it folds the events of a config, decides which
// of its slots fire and which do not, and finds the holes of a ledger. It reads no clock and no
// database, and makes no run.
package config
