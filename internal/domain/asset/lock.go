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

// Overlap defines whether runs of a pipeline exclude each other.
type Overlap string

// The overlaps. The default is lock.
const (
	OverlapLock  Overlap = "lock"
	OverlapAllow Overlap = "allow"
)

// Lock defines which runs of a pipeline exclude each other. The default is all runs of the pipeline
// in the workspace.
type Lock struct {
	// Key is an expression in CEL over parameters, workspace and pipeline that returns the name of
	// the lock. Runs of one tenant with the same name exclude each other, also across pipelines.
	Key string `json:"key,omitempty"`
	// Shared uses one lock for the workspace and the pipeline, for the runs of all configs.
	Shared bool `json:"shared,omitempty"`
}

// The limits of locks.
const (
	MaxLockExpression = 1_000
	MaxLockKey        = 200 // bytes of a lock's name
	// maxLockCost bounds the work of one evaluation, so that a long loop ends with an error.
	maxLockCost = 100_000
)

// LockKey computes the name of the lock of a pipeline's runs.
type LockKey struct {
	pipeline string
	program  cel.Program // nil: the lock is named after the workspace and the pipeline
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

// compileLock checks an expression. Its result type must be text, or unknown until evaluation.
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
		return nil, fmt.Errorf("returns %s, not text", t)
	}
	return environment.Program(checked, cel.CostLimit(maxLockCost))
}

// firstIssue returns the first error of the compiler, on one line.
func firstIssue(issues *cel.Issues) string {
	first := issues.Errors()[0]
	return fmt.Sprintf("column %d: %s", first.Location.Column()+1, clip(strings.Join(strings.Fields(first.Message), " ")))
}

// Of returns the name of the lock of one run. Parameters are the run's, defaults included.
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
		return refuse("the pipeline's lock.key cannot be evaluated: "+clip(err.Error()), "set the parameters that it needs, or change it in the manifest")
	}
	text, ok := result.(types.String)
	switch name := string(text); {
	case !ok:
		return refuse("the pipeline's lock.key returns "+result.Type().TypeName()+", not text", "wrap it in string(…) in the manifest")
	case name == "":
		return refuse("the pipeline's lock.key returns an empty text", "set the parameters that it needs, or change it in the manifest")
	case len(name) > MaxLockKey:
		return refuse(fmt.Sprintf("the pipeline's lock.key returns %d bytes, the limit is %d", len(name), MaxLockKey), "shorten the parameters, or change it in the manifest")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return refuse("the pipeline's lock.key returns text that cannot be stored", `remove zero characters (\u0000)`)
	default:
		return name, nil
	}
}

// celValues decodes parameters so that whole numbers remain whole.
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
	value, path, set := parent.take("lock")
	if !set {
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
			found.add(path+".lock", "is set, but overlap: allow uses no lock", "remove one of the two")
		}
	default:
		found.add(path+".overlap", quoted(string(p.Overlap))+" is not an overlap", "choose one of lock, allow")
	}
	if p.Lock == nil {
		return
	}
	if p.Lock.Key != "" && p.Lock.Shared {
		found.add(path+".lock", "has both key and shared", "remove one of them")
		return
	}
	field := path + ".lock.key"
	length(found, field, p.Lock.Key, MaxLockExpression)
	if p.Lock.Key == "" || len(p.Lock.Key) > MaxLockExpression {
		return
	}
	if _, err := compileLock(p.Lock.Key); err != nil {
		found.add(field, clip(err.Error()), "write an expression in CEL that returns text, such as workspace + '/' + parameters.region")
	}
}

// normaliseLock removes settings that equal the default.
func (p *Pipeline) normaliseLock() {
	if p.Overlap == OverlapLock {
		p.Overlap = ""
	}
	if p.Lock != nil && *p.Lock == (Lock{}) {
		p.Lock = nil
	}
}
