package asset

import (
	"encoding/json"
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
)

// Parse decodes a manifest from YAML or JSON, validates and normalises it. The extension of the name
// selects the format; a file without extension is JSON if it starts with a brace. The returned fault
// has all errors.
func Parse(data []byte, filename string) (*Manifest, error) {
	tree, err := readTree(data, filename)
	if err != nil {
		return nil, err
	}
	found := newViolations(fault.InvalidManifest)
	m := decodeManifest(found, tree)
	if m.Version != Version {
		// Another version has other rules, so no other error would be reliable.
		return nil, found.err()
	}
	if found.fields["assets"] {
		// Without all assets, valid references to them would be reported as unknown.
		return nil, found.err()
	}
	m.validate(found)
	if err := found.err(); err != nil {
		return nil, err
	}
	m.normalise()
	return m, nil
}

// CheckInline refuses a manifest that is too large for a request.
func CheckInline(data []byte) error {
	if len(data) <= MaxInlineBytes {
		return nil
	}
	return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit inside a request is %d", len(data), MaxInlineBytes),
		fault.Field("manifest"), fault.Remedy("send it compressed in manifest_gzip, as servo deploy does"),
		fault.Value("limit", MaxInlineBytes), fault.Value("current", len(data)))
}

func decodeManifest(found *violations, tree any) *Manifest {
	o := asObject(found, "", tree)
	m := &Manifest{}
	if o.fields == nil {
		return m
	}
	o.required("version", "start with: version: 1")
	m.Version = o.integer("version", Version)
	if m.Version != Version {
		found.add("version", fmt.Sprintf("is %d, this build reads version %d", m.Version, Version), "write version: 1, or use a Servo version that reads it")
		return m
	}
	o.required("assets", "list at least one asset")
	assets, path, _ := o.list("assets", MaxAssets)
	m.Assets = make([]Asset, 0, len(assets))
	for i, value := range assets {
		m.Assets = append(m.Assets, decodeAsset(found, at(path, i), i, value))
	}
	pipelines, path, _ := o.list("pipelines", MaxPipelines)
	for i, value := range pipelines {
		m.Pipelines = append(m.Pipelines, decodePipeline(found, at(path, i), i, value))
	}
	o.close()
	return m
}

// nameIn returns the naming field of an object before the object is decoded, for paths.
func nameIn(value any, field string) string {
	fields, _ := value.(map[string]any)
	name, _ := fields[field].(string)
	return name
}

func decodeAsset(found *violations, path string, i int, value any) Asset {
	if key := nameIn(value, "key"); key != "" {
		path = assetPath(i, key)
	}
	o := asObject(found, path, value)
	o.required("key", "set a key such as gold/revenue")
	a := Asset{
		Key:         o.text("key"),
		Description: o.text("description"),
		Upstream:    o.texts("upstream", MaxUpstream),
		Pool:        o.text("pool"),
		Timeout:     o.duration("timeout", minTimeout, maxTimeout),
		Retry:       decodeRetry(o),
		Tags:        o.texts("tags", MaxTags),
		Owners:      o.texts("owners", MaxOwners),
	}
	if value, path, set := o.take("exec"); set {
		e := asObject(found, path, value)
		e.required("command", `write the command as a list, such as ["python", "-m", "orders"]`)
		a.Exec = &Exec{Command: e.texts("command", MaxCommand), Env: e.dictionary("env")}
		e.close()
	}
	if value, path, set := o.take("http"); set {
		h := asObject(found, path, value)
		h.required("url", "set the URL to call")
		a.HTTP = &HTTP{URL: h.text("url"), Method: h.text("method"), Headers: h.dictionary("headers")}
		h.close()
	}
	if value, path, set := o.take("go"); set {
		g := asObject(found, path, value)
		a.Go = &Go{Handler: g.text("handler")}
		g.close()
	}
	decodePartitions(o, &a)
	decodeQuality(o, &a)
	if value, path, set := o.take("python"); set {
		p := asObject(found, path, value)
		a.Python = &Python{Function: p.text("function"), Code: p.text("code")}
		p.close()
	}
	o.close()
	return a
}

func decodeRetry(parent *object) *Retry {
	value, path, set := parent.take("retry")
	if !set {
		return nil
	}
	o := asObject(parent.found, path, value)
	defer o.close()
	return &Retry{
		MaxAttempts:   o.integer("max_attempts", maxAttempts),
		MaxDeaths:     o.integer("max_deaths", maxAttempts),
		InitialDelay:  o.duration("initial_delay", minDelay, maxInitialDelay),
		MaxDelay:      o.duration("max_delay", minDelay, maxMaxDelay),
		Multiplier:    o.number("multiplier", 1, maxMultiplier),
		Jitter:        o.number("jitter", minJitter, 1),
		RetryOn:       o.texts("retry_on", MaxRetryCodes),
		NoRetryOn:     o.texts("no_retry_on", MaxRetryCodes),
		TimeoutGrowth: o.number("timeout_growth", 1, maxTimeoutGrowth),
	}
}

func decodePipeline(found *violations, path string, i int, value any) Pipeline {
	if name := nameIn(value, "name"); name != "" {
		path = pipelinePath(i, name)
	}
	o := asObject(found, path, value)
	o.required("name", "set a name such as revenue")
	p := Pipeline{
		Name:         o.text("name"),
		Description:  o.text("description"),
		Select:       o.texts("select", MaxSelect),
		Retry:        decodeRetry(o),
		MaxExecution: o.duration("max_execution", minMaxExecution, maxMaxExecution),
		Overlap:      Overlap(o.text("overlap")),
		Lock:         decodeLock(o),
		Priority:     o.integer("priority", maxPriority),
	}
	if p.Select != nil && len(p.Select) == 0 {
		found.add(join(path, "select"), "is empty", "remove the field to select all assets")
	}
	values, _, _ := o.list("parameters", MaxParameters)
	for i, value := range values {
		p.Parameters = append(p.Parameters, decodeParameter(found, path, i, value))
	}
	o.close()
	return p
}

func decodeParameter(found *violations, pipeline string, i int, value any) Parameter {
	o := asObject(found, parameterPath(pipeline, i, nameIn(value, "name")), value)
	o.required("name", "set a name such as region")
	o.required("type", "choose one of "+parameterTypeNames)
	p := Parameter{
		Name:        o.text("name"),
		Type:        ParameterType(o.text("type")),
		Description: o.text("description"),
		Required:    o.boolean("required"),
		Default:     o.raw("default"),
	}
	if values, path, set := o.list("enum", MaxEnum); set {
		p.Enum = make([]json.RawMessage, 0, len(values))
		for i, value := range values {
			p.Enum = append(p.Enum, asRaw(found, at(path, i), value))
		}
	}
	o.close()
	return p
}
