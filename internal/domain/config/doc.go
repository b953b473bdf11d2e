// Package config defines a config: one tenant's use of a pipeline with parameters, a trigger and
// policies. It is pure: it applies the events of a config, decides which of its slots fire and which
// are skipped, and checks a ledger for missing and duplicate slots. It reads no clock and no
// database, and creates no run.
package config
