// Judge says what GitOps tools think of objects, by their own libraries: kstatus (Flux, Helm 4), Argo CD's Lua
// interpreter, and CEL in the order in which Flux asks it.
//
// On standard input one JSON object: {"lua": script, "cel": {"inProgress", "failed", "current"}, "objects": [...]}. On standard
// output a JSON list, one entry an object: {"kstatus", "argocd", "flux"}.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type question struct {
	Lua     string                      `json:"lua"`
	CEL     map[string]string           `json:"cel"`
	Objects []unstructured.Unstructured `json:"objects"`
}

type answer struct {
	Kstatus string `json:"kstatus"`
	Argocd  string `json:"argocd"`
	Flux    string `json:"flux"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	programs, err := compile(asked.CEL)
	if err != nil {
		return err
	}
	answers := make([]answer, 0, len(asked.Objects))
	for i := range asked.Objects {
		object := &asked.Objects[i]
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		argocd, err := luaHealth(asked.Lua, object.Object)
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		answers = append(answers, answer{string(result.Status), argocd, fluxHealth(programs, object.Object)})
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// luaHealth opens what Argo CD opens for a script of a user's own: no more than these three libraries.
func luaHealth(script string, object map[string]any) (string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		call := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return "", err
		}
	}
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(script); err != nil {
		return "", err
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", fmt.Errorf("the script returned a %s, not a table", state.Get(-1).Type())
	}
	return lua.LVAsString(health.RawGetString("status")), nil
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch known := value.(type) {
	case bool:
		return lua.LBool(known)
	case string:
		return lua.LString(known)
	case int64:
		return lua.LNumber(known)
	case float64:
		return lua.LNumber(known)
	case []any:
		table := state.NewTable()
		for _, item := range known {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range known {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

// order is the one in which Flux asks, and what it makes of the first that holds.
var order = []struct{ field, verdict string }{
	{"inProgress", "InProgress"}, {"failed", "Failed"}, {"current", "Current"},
}

func compile(expressions map[string]string) (map[string]cel.Program, error) {
	env, err := cel.NewEnv(
		cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType),
	)
	if err != nil {
		return nil, err
	}
	programs := map[string]cel.Program{}
	for field, expression := range expressions {
		checked, issues := env.Compile(expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("%s: %w", field, issues.Err())
		}
		if programs[field], err = env.Program(checked); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
	}
	return programs, nil
}

// fluxHealth: an expression that cannot be evaluated counts as in progress, until Flux's time-out.
func fluxHealth(programs map[string]cel.Program, object map[string]any) string {
	for _, one := range order {
		program, ok := programs[one.field]
		if !ok {
			continue
		}
		value, _, err := program.Eval(object)
		if err != nil {
			return "InProgress: " + err.Error()
		}
		if value.Value() == true {
			return one.verdict
		}
	}
	return "InProgress"
}
