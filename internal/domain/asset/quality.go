package asset

import (
	"encoding/json"
	"slices"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/domain/quality"
)

// decodeQuality decodes output, checks and quarantine of an asset. Package quality has the rules.
func decodeQuality(o *object, a *Asset) {
	if value, path, set := o.take("output"); set {
		out := asObject(o.found, path, value)
		out.required("format", "choose a format such as parquet")
		a.Output = &quality.Output{
			Format:    quality.Format(out.text("format")),
			Schema:    decodeColumns(out, "schema"),
			Sensitive: out.texts("sensitive", quality.MaxSensitive),
			Retain:    out.integer("retain", quality.MaxRetain),
		}
		out.close()
	}
	checks, path, _ := o.list("checks", quality.MaxChecks)
	for i, value := range checks {
		a.Checks = append(a.Checks, decodeCheck(o.found, at(path, i), value))
	}
	a.Quarantine = o.boolean("quarantine")
}

func decodeColumns(o *object, name string) []quality.Column {
	values, path, set := o.list(name, quality.MaxColumns)
	if !set {
		return nil
	}
	columns := make([]quality.Column, 0, len(values))
	for i, value := range values {
		c := asObject(o.found, at(path, i), value)
		c.required("name", "name the column")
		c.required("type", "choose a type such as string")
		columns = append(columns, quality.Column{Name: c.text("name"), Type: quality.ColumnType(c.text("type"))})
		c.close()
	}
	return columns
}

func decodeCheck(found *violations, path string, value any) quality.Check {
	o := asObject(found, path, value)
	o.required("type", "choose a type such as row_count")
	c := quality.Check{
		Name:       o.text("name"),
		Type:       quality.Type(o.text("type")),
		Phase:      quality.Phase(o.text("phase")),
		Severity:   quality.Severity(o.text("severity")),
		Timeout:    o.duration("timeout", quality.MinTimeout, quality.MaxTimeout),
		Input:      o.text("input"),
		Column:     o.text("column"),
		Columns:    o.texts("columns", quality.MaxCheckColumns),
		Min:        o.raw("min"),
		Max:        o.raw("max"),
		MinRatio:   o.number("min_ratio", 0, quality.MaxRatio),
		MaxAge:     o.duration("max_age", quality.MinAge, quality.MaxAge),
		Schema:     decodeColumns(o, "schema"),
		AllowExtra: o.boolean("allow_extra"),
		Pattern:    o.text("pattern"),
		SQL:        o.text("sql"),
		Function:   o.text("function"),
	}
	if values, path, set := o.list("values", quality.MaxValues); set {
		c.Values = make([]json.RawMessage, 0, len(values))
		for i, value := range values {
			c.Values = append(c.Values, asRaw(found, at(path, i), value))
		}
	}
	if value, path, set := o.take("references"); set {
		r := asObject(found, path, value)
		r.required("asset", "name an upstream")
		r.required("column", "name a column")
		c.References = &quality.Reference{Asset: r.text("asset"), Column: r.text("column")}
		r.close()
	}
	o.close()
	return c
}

func (a *Asset) validateQuality(found *violations, path string) {
	d := quality.Declaration{Output: a.Output, Checks: a.Checks, Quarantine: a.Quarantine, Upstream: a.Upstream, Functions: a.Go != nil || a.Python != nil, Files: a.HTTP == nil}
	d.Validate(func(field, message, remedy string) { found.add(path+"."+field, message, remedy) })
}

func (a *Asset) normaliseQuality() {
	if a.Output != nil {
		a.Output.Normalise()
		a.addSchemaCheck()
	}
	for i := range a.Checks {
		c := &a.Checks[i]
		c.Normalise()
		c.Min, c.Max = canonical(c.Min), canonical(c.Max)
		for j := range c.Values {
			c.Values[j] = canonical(c.Values[j])
		}
	}
}

// addSchemaCheck makes a declared schema a check, unless the asset has one.
func (a *Asset) addSchemaCheck() {
	has := slices.ContainsFunc(a.Checks, func(c quality.Check) bool { return c.Type == quality.SchemaMatch && c.Phase != quality.Pre })
	if len(a.Output.Schema) > 0 && !has {
		a.Checks = append(a.Checks, quality.Check{Type: quality.SchemaMatch})
	}
}

// canonical returns a value in canonical form; validation has checked that it has one.
func canonical(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	if c, err := canon.JSON(raw); err == nil {
		return c
	}
	return raw
}
