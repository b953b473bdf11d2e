package chaos

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
)

// Times of the chaos world. Leases are as short as they may be, so that they expire often.
const (
	leaseTime        = 2 * time.Second
	heartbeatTimeout = 2 * time.Second
	heartbeatEvery   = 500 * time.Millisecond
	callTimeout      = 4 * time.Second // the engine's own
	reaperTick       = time.Second     // the pace of package reaper
	silenceTimeout   = 3 * time.Second // after which PostgreSQL ends a silent transaction of package store
	slotEvery        = 120 * time.Millisecond
)

// Sizes of the chaos world.
const (
	servers   = 3
	workers   = 6 // in each server
	tenants   = 4
	coneSize  = 1100 // more than the engine skips in one transaction
	coneEvery = 97   // one slot in so many
	maxFanOut = 7
	cursorEnd = 3 // pages of an asset with a cursor
	connsEach = 8 // of a server
)

// pipelines are the shapes of runs, each as likely as the others.
func pipelines() []string { return []string{"single", "chain", "diamond", "fan", "short", "pages"} }

// code is an asset of the manifest; what it does is the worker's whim.
func code(key, more string) string {
	return fmt.Sprintf("  - {key: %s, exec: {command: [run]}%s}\n", key, more)
}

// pipeline is a pipeline of the manifest. Backoffs are short, and there are attempts enough
// that most runs succeed.
func pipeline(name, selected string) string {
	return fmt.Sprintf("  - {name: %s, overlap: allow, select: [%s], retry: {max_attempts: 12, max_deaths: 100, initial_delay: 100ms, max_delay: 400ms}}\n", name, selected)
}

// manifest has a pipeline for each shape.
func manifest() (*asset.Manifest, error) {
	text := "version: 1\nassets:\n" +
		code("s/one", "") +
		code("t/short", ", timeout: 1s") + // the deadline comes before the lease's end
		code("p/pages", "") +
		code("c/a", "") + code("c/b", ", upstream: [c/a]") + code("c/c", ", upstream: [c/b], pool: second") +
		code("d/a", "") + code("d/b", ", upstream: [d/a]") + code("d/c", ", upstream: [d/a], pool: second") + code("d/d", ", upstream: [d/b, d/c]") +
		code("f/scan", "") + code("f/fetch", ", pool: second") + code("f/join", ", upstream: [f/scan]") +
		"pipelines:\n" +
		pipeline("single", "s/one") + pipeline("short", "t/short") + pipeline("pages", "p/pages") +
		pipeline("chain", `"c/*"`) + pipeline("diamond", `"d/*"`) + pipeline("fan", "f/scan, f/join")
	return asset.Parse([]byte(text), "servo.yaml")
}

// wideManifest has one pipeline: a task that fails, and more that wait for it than one
// transaction skips. It has a workspace of its own, since it is slow to read.
func wideManifest() (*asset.Manifest, error) {
	var text strings.Builder
	text.WriteString("version: 1\nassets:\n" + code("k/root", ""))
	for i := range coneSize {
		text.WriteString(code(fmt.Sprintf("k/leaf%d", i), ", upstream: [k/root]"))
	}
	text.WriteString("pipelines:\n" + pipeline(wide, `"k/*"`))
	return asset.Parse([]byte(text.String()), "servo.yaml")
}

// wide is the rare shape, and the workspace of the first tenant that it is deployed to.
const wide = "wide"

// shape is what a slot runs.
type shape struct {
	tenant    id.Tenant
	workspace string
	pipeline  string
}

// shapeOf returns what a slot runs, the same for every server.
func shapeOf(seed uint64, slot int64, owners []id.Tenant) shape {
	if slot%coneEvery == coneEvery-1 {
		return shape{owners[0], wide, wide}
	}
	names := pipelines()
	return shape{owners[mix(seed, -slot)%uint64(len(owners))], "default", names[mix(seed, slot)%uint64(len(names))]}
}

// mix is a stable number for a slot of a seed.
func mix(seed uint64, slot int64) uint64 {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d/%d", seed, slot)
	return hash.Sum64() >> 8
}
