// Package asset is the manifest: assets with their upstreams and code, pipelines with
// their parameters, how they are read from servo.yaml or JSON, and the rules that they
// keep. A mistake is told with its field and what to do about it, and all mistakes are
// told together. The package is pure: it never opens a file, resolves a host or looks at
// what has been deployed before.
package asset
