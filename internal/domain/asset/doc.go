// Package asset defines the manifest: assets with their upstreams and code, and pipelines with their
// parameters. It parses servo.yaml or JSON and validates the rules of a manifest. Each error names
// the field and a remedy, and all errors are reported together. The package is pure: it never opens
// a file, resolves a host or reads earlier deployments.
package asset
