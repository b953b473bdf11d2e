package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// output is the form in which a command prints its data.
type output string

const (
	outputTable output = "table"
	outputWide  output = "wide" // a table with more columns
	outputName  output = "name" // names or ids alone, one on a line
	outputJSON  output = "json"
	outputYAML  output = "yaml"

	jsonPathPrefix = "jsonpath=" // before an expression
)

// outputForms are the values of --output.
const outputForms = "table, wide, name, json, yaml or jsonpath=EXPRESSION"

// forPeople reports whether the output is a table.
func (o output) forPeople() bool { return o == outputTable || o == outputWide }

// addOutput gives a command the flag --output.
func addOutput(cmd *cobra.Command, to *output) {
	*to = outputTable
	cmd.Flags().VarP(to, "output", "o", "output form: "+outputForms)
	forms := []string{string(outputTable), string(outputWide), string(outputName), string(outputJSON), string(outputYAML), "jsonpath="}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // fails if called twice
}

// String, Set and Type make output a flag.
func (o *output) String() string { return string(*o) }

// Set accepts the known forms.
func (o *output) Set(text string) error {
	switch form := output(text); form {
	case outputTable, outputWide, outputName, outputJSON, outputYAML:
		*o = form
		return nil
	}
	if expression, ok := strings.CutPrefix(text, jsonPathPrefix); ok {
		*o = output(text)
		_, err := parseJSONPath(expression)
		return err
	}
	near := suggest.DidYouMean(text, []string{string(outputTable), string(outputWide), string(outputName), string(outputJSON), string(outputYAML)})
	return fmt.Errorf("must be %s%s", outputForms, near)
}

// Type is the placeholder in help texts.
func (o *output) Type() string { return "FORM" }

// render prints value as JSON or YAML, or calls table with a writer that aligns columns
// at tabs. JSON and YAML have the same fields, those of the value's JSON.
func render(w io.Writer, form output, value any, table func(w io.Writer)) error {
	if expression, ok := strings.CutPrefix(string(form), jsonPathPrefix); ok {
		return renderPath(w, expression, value)
	}
	switch form {
	case outputName:
		return renderNames(w, value)
	case outputJSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return wrote(encoder.Encode(value))
	case outputYAML:
		canonical, err := canon.Marshal(value)
		if err != nil {
			return err
		}
		var tree any
		if err := json.Unmarshal(canonical, &tree); err != nil {
			return fmt.Errorf("read canonical JSON: %w", err)
		}
		encoder := yaml.NewEncoder(w)
		encoder.SetIndent(2)
		if err := encoder.Encode(whole(tree)); err != nil {
			return wrote(err)
		}
		return wrote(encoder.Close())
	default:
		var text strings.Builder
		aligned := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
		table(aligned)
		if err := aligned.Flush(); err != nil {
			return wrote(err)
		}
		_, err := io.WriteString(w, text.String())
		return wrote(err)
	}
}

// whole converts numbers without a fraction to integers: YAML would write a million as 1e+06.
func whole(value any) any {
	const exact = 1 << 53
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= exact {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = whole(v[key])
		}
	}
	return value
}

// wrote explains an error of writing.
func wrote(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot write the output: "+err.Error(),
		fault.Remedy("check that the reader still runs"), fault.Cause(err))
}

// count is "1 task" or "2 tasks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
