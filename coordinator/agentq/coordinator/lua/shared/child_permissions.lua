--[[ What an attempt may give a child of its run: at most what the run has itself. A field of the child's spec that is
named nowhere here refuses the child, so that a new field is refused until it is listed here. ]]

-- Fields that concern only the child itself.
local FREE_FIELDS = ' v kind name argv stdin function args kwargs agent prompt labels notes traceparent delay_ms due_at_ms '
  .. 'expires_ms on_failed if_live retry children context inputs after parent fair_key limits on_drain '

-- Fields that the functions below check.
local BOUNDED_FIELDS = ' workspace cwd env turn caps may_submit timeout_ms silence_timeout_ms stop_grace_ms keep_ms '

local TURN_FIELDS = ' model system_prompt expects on_limit startup_timeout_ms linger_timeout_ms permissions trust account budgets '

-- Permissions in ascending order.
local PERMISSIONS = ' read edit full '

local function find_word(word, words) return string.find(words, ' ' .. word .. ' ', 1, true) end

-- A spec, or the arguments of a plain call; nil if it is nested deeper than can be read here.
local function decode_table(text)
  local known, spec = pcall(cjson.decode, text)
  return known and type(spec) == 'table' and spec or nil
end

local function parse_spec(text)
  if string.sub(text, 1, 1) == '{' then return decode_table(text) end
  local path, arguments = string.match(text, '^([^%[{]+)([%[{].*)$')
  arguments = decode_table((string.gsub(arguments, ' 00%-%x+%-%x+%-%x%x$', '')))
  return arguments and { kind = 'function', ['function'] = path, args = arguments }
end

local function is_equal(one, other)
  if type(one) ~= 'table' or type(other) ~= 'table' then return one == other end
  for name, value in pairs(one) do
    if not is_equal(value, other[name]) then return false end
  end
  for name in pairs(other) do
    if one[name] == nil then return false end
  end
  return true
end

local function sorted_names(found)
  local names = {}
  for name in pairs(found) do names[#names + 1] = tostring(name) end
  table.sort(names)
  return names
end

local function format_integer(value) return string.format('%.0f', value) end

local function demands_of(lane, own_host_demand)
  local demands = {}
  for name, value in string.gmatch(string.match(lane, '^[^:]*:[^:]*:(.*)$'), '([^=,]+)=([^,]+)') do
    if string.sub(name, 1, 6) ~= 'agent.' then demands[name] = value end
  end
  -- A host demand that follows from its conversation is not its own.
  if own_host_demand then demands.host = string.match(own_host_demand, '^host=(.*)$') end
  return demands
end

-- Queue, priority, fair key and demands, which decide where and when it waits.
local function refuse_lane(parent, lane, options)
  local queue, priority = queue_of(parent.lane), string.match(parent.lane, '^[^:]*:(%d)')
  if queue_of(lane) ~= queue then return 'it is in the queue ' .. queue .. ', not in ' .. queue_of(lane) end
  if string.match(lane, '^[^:]*:(%d)') > priority then return 'its priority is ' .. priority .. ' at the most' end
  if options.fair_key ~= (parent.fair_key or nil) then return 'its fair_key is that of its parent' end
  local own = demands_of(lane)
  for name, value in pairs(demands_of(parent.lane, parent.own_host_demand)) do
    if own[name] ~= value then return 'it demands ' .. name .. '=' .. value .. ', too' end
  end
end

local function units_of(limits)
  local units = {}
  for key, count in string.gmatch(limits or '', '(%S+) (%S+)') do units[key] = tonumber(count) end
  return units
end

local function refuse_limits(parent, options)
  local own = units_of(parent.limits or '')
  for key, count in pairs(units_of(options.limits)) do
    if not own[key] then return 'it needs no room under the limit ' .. key end
    if count > own[key] then return 'it needs ' .. format_integer(own[key]) .. ' units at the most under the limit ' .. key end
  end
end

-- Which children a run may have, as a set: by its `may_submit`, or, without one, agents as it is one.
local function permitted_children(spec)
  local words = {}
  for _, word in ipairs(spec.may_submit or (spec.kind == 'agent' and { 'agent' } or {})) do
    words[word == 'agent' and 'agent:' .. spec.agent or word] = true
  end
  return words
end

local function refuse_kind(own, child)
  local words = permitted_children(own)
  local what = child.kind == 'agent' and 'agent:' .. child.agent or child.kind
  if not words[what] then return 'its may_submit would have to name ' .. what end
  if child.may_submit then
    for _, word in ipairs(sorted_names(permitted_children(child))) do
      if not words[word] then return 'its may_submit has no ' .. word end
    end
  end
end

local function refuse_budgets(own, asked)
  for _, name in ipairs(sorted_names(own)) do
    if not asked[name] or asked[name] > own[name] then
      return 'its budget is ' .. string.format('%.14g', own[name]) .. ' for ' .. name .. ' at the most'
    end
  end
end

local function refuse_agent_options(own, child)
  local mine, turn = own.turn or {}, child.turn or {}
  local may = own.kind == 'agent' and (mine.permissions or 'edit') or 'full'
  if find_word(turn.permissions or 'edit', PERMISSIONS) > find_word(may, PERMISSIONS) then return 'its permissions are ' .. may .. ' at the most' end
  if turn.trust == 'repo' and mine.trust ~= 'repo' then return 'it does not trust its repository' end
  if turn.account ~= mine.account then return 'its account is that of its parent, ' .. (mine.account or 'which names none') end
  for _, name in ipairs(sorted_names(turn)) do
    if not find_word(name, TURN_FIELDS) then return 'it has no turn.' .. name end
  end
  return refuse_budgets(mine.budgets or {}, turn.budgets or {})
end

local function is_within(folder, outer)
  local bare = string.gsub(outer, '/+$', '')
  if string.find('/' .. folder .. '/', '/../', 1, true) then return false end
  return folder == bare or string.sub(folder, 1, #bare + 1) == bare .. '/'
end

-- The worktree that an attempt has noted. Each has its run's id in its name, so a false note leads to no other's
-- folder.
local function worktree_of(id, parent)
  local work = decode_table(call('HGET', parent.key, 'merge_progress') or '')
  local path = work and work.worktree
  return type(path) == 'string' and string.find(path, id, 1, true) and path
end

local function refuse_folder(id, parent, own, child)
  if child.workspace then
    if not is_equal(child.workspace, own.workspace) then return 'it has no workspace but that of its parent' end
    if own.cwd and not is_within(child.cwd or '', own.cwd) then return 'its cwd is in that of its parent, ' .. own.cwd end
    return nil
  end
  if own.kind ~= 'agent' or (own.turn or {}).permissions == 'full' then return nil end
  local outer = own.cwd
  if own.workspace then
    outer = worktree_of(id, parent)
    if not outer then return 'it has the workspace of its parent' end
  elseif parent.turn_of then
    outer = outer or non_empty(call('HGET', key_session(parent.turn_of), 'cwd') or '')
  end
  if outer and not is_within(child.cwd or '', outer) then return 'its cwd is in that of its parent, ' .. outer end
  if not outer and child.cwd then return 'it has no cwd, as its parent has none' end
end

local function refuse_environment(own, child)
  if own.kind ~= 'agent' or (own.turn or {}).permissions == 'full' then return nil end
  for _, name in ipairs(sorted_names(child.env or {})) do
    if (own.env or {})[name] ~= child.env[name] then return 'it has no variable of its own, such as ' .. name end
  end
end

local function refuse_time(name, own, asked, usual)
  local most = own or usual
  if most and (asked or usual or math.huge) > most then return 'its ' .. name .. ' is ' .. format_integer(most) .. ' at the most' end
end

local function refuse_caps(own, asked)
  for _, name in ipairs(sorted_names(own)) do
    local kept = asked[name] == own[name] or (asked[name] and name ~= 'umask'
      and (name == 'nice') == (asked[name] > own[name]))
    if not kept then return 'its caps.' .. name .. ' is ' .. format_integer(own[name]) .. ', as that of its parent' end
  end
end

local function refuse_fields(child)
  for _, name in ipairs(sorted_names(child)) do
    if not (find_word(name, FREE_FIELDS) or find_word(name, BOUNDED_FIELDS)) then return 'it has no ' .. name end
  end
end

local function collect_references(value, found)
  for name, inner in pairs(value) do
    if name == '$run' then found[#found + 1] = inner elseif type(inner) == 'table' then collect_references(inner, found) end
  end
end

-- A child names none but its parent's children, and what its parent itself was given.
local function refuse_references(id, own, child, options)
  local named, known = {}, {}
  for _, other in pairs(child.inputs or {}) do named[#named + 1] = other end
  for _, other in ipairs(options.after or {}) do named[#named + 1] = other end
  collect_references({ child.args or {}, child.kwargs or {} }, named)
  for _, other in pairs(own.inputs or {}) do known[other] = true end
  for _, other in ipairs(own.after or {}) do known[other] = true end
  for _, other in ipairs(named) do
    if not known[other] and call('HGET', key_run(tostring(other)), 'parent') ~= id then
      return 'the run ' .. tostring(other) .. ' is neither a child of its parent nor given to that'
    end
  end
end

local function is_too_deep(run)
  for _ = 1, CHILD_DEPTH_MAX do
    run = call('HGET', key_run(run), 'parent')
    if not run then return false end
  end
  return true
end

-- Why an attempt may not have this child, or nil.
local function refuse_child_permissions(options, lane, text)
  local id = options.parent
  local parent = load(id)
  if not (parent and is_held(parent) and parent.fence == options.fence) then return 'parent_fenced ' .. id end
  if is_too_deep(id) then return 'too_deep ' .. tostring(CHILD_DEPTH_MAX) end
  local own, child = parse_spec(call('HGET', parent.key, 'spec')), parse_spec(text)
  if not (own and child) then return 'not_permitted it is nested too deeply' end
  local why = refuse_kind(own, child) or refuse_fields(child) or refuse_lane(parent, lane, options)
    or refuse_limits(parent, options) or refuse_references(id, own, child, options) or refuse_folder(id, parent, own, child)
    or refuse_environment(own, child) or (child.kind == 'agent' and refuse_agent_options(own, child))
    or refuse_time('timeout_ms', own.timeout_ms, child.timeout_ms)
    or refuse_time('silence_timeout_ms', own.silence_timeout_ms, child.silence_timeout_ms)
    or refuse_time('stop_grace_ms', own.stop_grace_ms, child.stop_grace_ms, STOP_GRACE_MS)
    or refuse_time('keep_ms', own.keep_ms, child.keep_ms, KEEP_MS) or refuse_caps(own.caps or {}, child.caps or {})
  return why and 'not_permitted ' .. why
end
