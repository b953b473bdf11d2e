package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// The matching of tasks with workers by capabilities, without SQL.

// capabilitySet is what a worker can run; nil is everything.
type capabilitySet struct {
	digest string
	list   []string // sorted, each once
	has    map[string]bool
}

func (s *capabilitySet) canRun(needs string) bool { return s == nil || needs == "" || s.has[needs] }

// name is the digest of the set.
func (s *capabilitySet) name() string {
	if s == nil {
		return store.Everything
	}
	return s.digest
}

// names are its capabilities.
func (s *capabilitySet) names() []string {
	if s == nil {
		return nil
	}
	return s.list
}

func newCapabilitySet(list []string) *capabilitySet {
	s := &capabilitySet{list: slices.Compact(slices.Sorted(slices.Values(list))), has: make(map[string]bool, len(list))}
	for _, c := range s.list {
		s.has[c] = true
	}
	sum := sha256.Sum256([]byte(strings.Join(s.list, "\x00")))
	s.digest = hex.EncodeToString(sum[:16])
	return s
}

// poolCapabilities are the capabilities of the live workers of a pool.
type poolCapabilities struct {
	workers    bool // the pool has workers; without any no task is held
	everything bool
	sets       []*capabilitySet
}

// add adds the capabilities of a worker that was not seen yet.
func (p *poolCapabilities) add(s *capabilitySet) {
	p.workers = true
	if s == nil {
		p.everything = true
		return
	}
	p.sets = append(p.sets[:len(p.sets):len(p.sets)], s)
}

func (p poolCapabilities) canRun(needs string) bool {
	return p.everything || slices.ContainsFunc(p.sets, func(s *capabilitySet) bool { return s.canRun(needs) })
}

// lackingOf returns the tasks that no worker of their pool can run, and the capabilities that they need.
func lackingOf(pools []*poolRound, tasks []store.ReadyTask) (lacking []store.Lacking, met []store.ReadyTask) {
	byPool := make(map[string]poolCapabilities, len(pools))
	for _, p := range pools {
		byPool[p.pool] = p.can
	}
	for _, t := range tasks {
		if byPool[t.Pool].canRun(t.Needs) {
			continue
		}
		met = append(met, t)
		l := store.Lacking{ShareKey: store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}, Needs: t.Needs}
		if !slices.Contains(lacking, l) {
			lacking = append(lacking, l)
		}
	}
	return lacking, met
}

// lackingTasks returns which tasks no worker of their pool can run.
func lackingTasks(pools []*poolRound, tasks []store.HandoffTask) map[id.Task]bool {
	lacks := map[id.Task]bool{}
	for _, p := range pools {
		for _, t := range tasks {
			if t.Pool == p.pool && !p.can.canRun(t.Needs) {
				lacks[t.ID] = true
			}
		}
	}
	return lacks
}

// describeNeed names the capability that a worker must have, and how to start such a worker.
func describeNeed(needs, pool string) (what, remedy string) {
	if output, isSQL := run.WithoutSQL(needs); isSQL {
		what, remedy = describeNeed(output, pool)
		return what + " and DuckDB for custom_sql checks", remedy + "; its program must be built with -tags duckdb and CGO_ENABLED=1"
	}
	if run.NeedsOutput(needs) {
		what, remedy = describeNeed(strings.TrimPrefix(needs, run.OutputCapability("")), pool)
		return what + " and a blob store for outputs", remedy + "; set its blob store with --blob-url or SERVO_BLOB_URL"
	}
	if handler, isGo := run.HandlerOf(needs); isGo {
		return "the Go handler " + handler, goWorkerRemedy(handler, pool)
	}
	if code, isPython := run.PythonOf(needs); isPython {
		return pythonNeed(code), pythonWorkerRemedy(code, pool)
	}
	if needs == "" { // a task of an earlier version
		return "what it needs", fmt.Sprintf("start a worker of pool %s: for Go assets the program with their handlers", pool)
	}
	return "the capability " + needs, "start a worker for exec and http assets: servo worker --pool " + pool
}

// goWorkerRemedy is how to start a worker for a Go handler.
func goWorkerRemedy(handler, pool string) string {
	return fmt.Sprintf("start the Go program that registers handler %s for pool %s; servo worker cannot run Go assets", handler, pool)
}

// pythonNeed names Python code for people.
func pythonNeed(code string) string {
	if strings.HasPrefix(code, "sha256:") {
		return "the Python code " + code
	}
	return "the Python asset " + code
}

// pythonWorkerRemedy is how to start a worker for Python code.
func pythonWorkerRemedy(code, pool string) string {
	if strings.HasPrefix(code, "sha256:") {
		return fmt.Sprintf("start a worker with this code: servo worker --python ARTIFACT --pool %s", pool)
	}
	return fmt.Sprintf("start a worker of a project that declares it: servo worker --python PROJECT --pool %s", pool)
}

// WorkerWarning are assets of one pool and kind that no live worker of the pool can run.
type WorkerWarning struct {
	Pool         string
	Capabilities []string
	Assets       []string
	Message      string
	Remedy       string
}

// maxNamedNeeds is how many capabilities a warning names.
const maxNamedNeeds = 5

func (w *WorkerWarning) describe() {
	what, remedy := describeNeed(w.Capabilities[0], w.Pool)
	if n := len(w.Capabilities); n > 1 {
		var handlers []string
		isPython := false
		for _, c := range w.Capabilities[:min(n, maxNamedNeeds)] {
			handler, isGo := run.HandlerOf(c)
			if !isGo {
				handler, isPython = run.PythonOf(c)
			}
			handlers = append(handlers, handler)
		}
		named := strings.Join(handlers, ", ")
		if n > maxNamedNeeds {
			named += fmt.Sprintf(" and %d more", n-maxNamedNeeds)
		}
		what = "the Go handlers " + named
		remedy = fmt.Sprintf("start the Go program that registers them for pool %s; servo worker cannot run Go assets", w.Pool)
		if isPython {
			what, remedy = "the Python assets "+named, "start a worker of a project that declares them: servo worker --python PROJECT --pool "+w.Pool
		}
	}
	w.Message, w.Remedy = fmt.Sprintf("no live worker of pool %s has %s", w.Pool, what), remedy
}
