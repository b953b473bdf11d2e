package asset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"go.arco.dev/servo/internal/base/fault"
)

// Overlap reports whether runs of a pipeline exclude each other.
type Overlap string

// The overlaps. Unsaid is lock.
const (
	OverlapLock  Overlap = "lock"
	OverlapAllow Overlap = "allow"
)

// Lock says by what runs of a pipeline exclude each other. Unsaid is the workspace and the
// pipeline.
type Lock struct {
	// Key is an expression in CEL over parameters, workspace and pipeline that gives the name
	// of the lock. Runs of one tenant with the same name exclude each other, whatever their
	// pipelines.
	Key string `json:"key,omitempty"`
	// Shared is one lock for the workspace and the pipeline, whichever config a run is of.
	Shared bool `json:"shared,omitempty"`
}

// Limits of locks.
const (
	MaxLockExpression = 1_000
	MaxLockKey        = 200 // bytes of a lock's name
	// maxLockCost bounds the work of one evaluation: a long loop is an error, not a wait.
	maxLockCost = 100_000
)

// LockKey gives the name of the lock of a pipeline's runs.
type LockKey struct {
	pipeline string
	program  cel.Program // nil is the workspace and the pipeline
}

// NewLockKey compiles the lock of a pipeline, once for many runs.
func NewLockKey(p Pipeline) (*LockKey, error) {
	key := &LockKey{pipeline: p.Name}
	if p.Lock == nil || p.Lock.Key == "" {
		return key, nil
	}
	var err error
	key.program, err = compileLock(p.Lock.Key)
	return key, err
}

// compileLock checks an expression. What it gives must be text, or may turn out to be.
func compileLock(expression string) (cel.Program, error) {
	environment, err := cel.NewEnv(
		cel.Variable("parameters", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("workspace", cel.StringType), cel.Variable("pipeline", cel.StringType),
		cel.ParserExpressionSizeLimit(MaxLockExpression))
	if err != nil {
		return nil, err
	}
	checked, issues := environment.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, errors.New(firstIssue(issues))
	}
	if t := checked.OutputType(); !t.IsExactType(cel.StringType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("gives %s, not text", t)
	}
	return environment.Program(checked, cel.CostLimit(maxLockCost))
}

// firstIssue is what the compiler says first, on one line.
func firstIssue(issues *cel.Issues) string {
	first := issues.Errors()[0]
	return fmt.Sprintf("column %d: %s", first.Location.Column()+1, clip(strings.Join(strings.Fields(first.Message), " ")))
}

// Of is the name of the lock of one run. Parameters are the run's, defaults included.
func (k *LockKey) Of(workspace string, parameters json.RawMessage) (string, error) {
	if k.program == nil {
		return workspace + "/" + k.pipeline, nil
	}
	refuse := func(message, remedy string) (string, error) {
		return "", fault.New(fault.InvalidArgument, message, fault.Field("parameters"), fault.Remedy(remedy), fault.Value("pipeline", k.pipeline))
	}
	values, err := celValues(parameters)
	if err != nil {
		return "", err
	}
	result, _, err := k.program.Eval(map[string]any{"parameters": values, "workspace": workspace, "pipeline": k.pipeline})
	if err != nil {
		return refuse("the pipeline's lock.key cannot be evaluated: "+clip(err.Error()), "give the parameters that it needs, or change it in the manifest")
	}
	text, ok := result.(types.String)
	switch name := string(text); {
	case !ok:
		return refuse("the pipeline's lock.key gives "+result.Type().TypeName()+", not text", "wrap it in string(…) in the manifest")
	case name == "":
		return refuse("the pipeline's lock.key gives no text", "give the parameters that it needs, or change it in the manifest")
	case len(name) > MaxLockKey:
		return refuse(fmt.Sprintf("the pipeline's lock.key gives %d bytes, the limit is %d", len(name), MaxLockKey), "give shorter parameters, or change it in the manifest")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return refuse("the pipeline's lock.key gives text that cannot be stored", `remove zero characters (\u0000)`)
	default:
		return name, nil
	}
}

// celValues reads parameters so that whole numbers stay whole.
func celValues(parameters json.RawMessage) (map[string]any, error) {
	values := map[string]any{}
	if len(parameters) == 0 {
		return values, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(parameters))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("parameters of a run: %w", err)
	}
	for name, value := range values {
		values[name] = celValue(value)
	}
	return values, nil
}

func celValue(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		number, _ := v.Float64()
		return number
	case []any:
		for i := range v {
			v[i] = celValue(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = celValue(v[name])
		}
	}
	return value
}

func decodeLock(parent *object) *Lock {
	value, path, said := parent.take("lock")
	if !said {
		return nil
	}
	o := asObject(parent.found, path, value)
	defer o.close()
	return &Lock{Key: o.text("key"), Shared: o.boolean("shared")}
}

func (p *Pipeline) validateLock(found *violations, path string) {
	switch p.Overlap {
	case "", OverlapLock:
	case OverlapAllow:
		if p.Lock != nil {
			found.add(path+".lock", "is said, but overlap: allow takes no lock", "remove one of the two")
		}
	default:
		found.add(path+".overlap", quoted(string(p.Overlap))+" is not an overlap", "choose one of lock, allow")
	}
	if p.Lock == nil {
		return
	}
	if p.Lock.Key != "" && p.Lock.Shared {
		found.add(path+".lock", "has both key and shared", "keep one of them")
		return
	}
	field := path + ".lock.key"
	length(found, field, p.Lock.Key, MaxLockExpression)
	if p.Lock.Key == "" || len(p.Lock.Key) > MaxLockExpression {
		return
	}
	if _, err := compileLock(p.Lock.Key); err != nil {
		found.add(field, clip(err.Error()), "write an expression in CEL that gives text, such as workspace + '/' + parameters.region")
	}
}

// normaliseLock leaves out what means the same unsaid.
func (p *Pipeline) normaliseLock() {
	if p.Overlap == OverlapLock {
		p.Overlap = ""
	}
	if p.Lock != nil && *p.Lock == (Lock{}) {
		p.Lock = nil
	}
}
